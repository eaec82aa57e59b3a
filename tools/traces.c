// A clock that runs FAST_FACTOR times as fast, for a program that starts with this library in LD_PRELOAD:
// `tools/traces` runs Bitcoin Core with it. It replaces only the functions through which Core reads a clock or waits: a
// wait takes 1/FAST_FACTOR of its length. libfaketime lacks pthread_cond_clockwait, with which Core's threads wait.
//
// FAST_ORIGIN and FAST_START are times in nanoseconds since 1970: at FAST_ORIGIN, this clock says FAST_START. All
// processes with the same values have the same clock.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#define SECOND 1000000000LL

static long long factor = 1, origin, start;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_nanosleep)(const struct timespec *, struct timespec *);
static int (*real_poll)(struct pollfd *, nfds_t, int);
static int (*real_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);

static long long setting(const char *name, long long otherwise) {
    const char *value = getenv(name);
    return value ? atoll(value) : otherwise;
}

// Runs before the first use, which may be in another library's constructor.
__attribute__((constructor)) static void load(void) {
    if (real_clockwait)
        return;
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_nanosleep = dlsym(RTLD_NEXT, "nanosleep");
    real_poll = dlsym(RTLD_NEXT, "poll");
    factor = setting("FAST_FACTOR", 1);
    origin = setting("FAST_ORIGIN", 0);
    start = setting("FAST_START", origin);
    real_clockwait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
}

static long long nanoseconds(const struct timespec *time) { return time->tv_sec * SECOND + time->tv_nsec; }

static struct timespec timespec_of(long long nanoseconds) {
    return (struct timespec){.tv_sec = nanoseconds / SECOND, .tv_nsec = nanoseconds % SECOND};
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    load();
    int result = real_clock_gettime(clock, time);
    // Not the clocks of CPU time.
    if (result == 0 && clock == CLOCK_REALTIME)
        *time = timespec_of(start + (nanoseconds(time) - origin) * factor);
    else if (result == 0 && clock == CLOCK_MONOTONIC)
        *time = timespec_of(nanoseconds(time) * factor);
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

int nanosleep(const struct timespec *length, struct timespec *rest) {
    load();
    struct timespec shorter = timespec_of(nanoseconds(length) / factor);
    int result = real_nanosleep(&shorter, rest);
    if (result != 0 && rest)
        *rest = timespec_of(nanoseconds(rest) * factor);
    return result;
}

int poll(struct pollfd *files, nfds_t count, int milliseconds) {
    load();
    // Rounded up: with 0, a loop would not wait at all.
    int shorter = milliseconds > 0 ? (milliseconds + (int)factor - 1) / (int)factor : milliseconds;
    return real_poll(files, count, shorter);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
    load();
    long long time = nanoseconds(until);
    time = clock == CLOCK_REALTIME ? origin + (time - start) / factor : time / factor;
    struct timespec real = timespec_of(time);
    return real_clockwait(condition, mutex, clock, &real);
}
