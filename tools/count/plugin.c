/* A plugin for QEMU's user mode that counts executed instructions. It prints "instructions N" at
 * the end and, with the argument `by=symbol`, a line for each function.
 *
 * Debian has no qemu-plugin.h, so the part in use is declared here (version 1 of the interface,
 * QEMU 4.2 to 8.2). */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t,
                                           void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, enum qemu_plugin_op,
                                                void *, uint64_t);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *);
void qemu_plugin_outs(const char *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* A function and the count of its executed instructions. Never freed or moved: translated code
 * adds to the count. */
struct function {
    struct function *next;
    const char *name;
    uint64_t count;
};

static struct function all = {.name = "instructions"};
static struct function *functions;
static bool by_symbol;

static struct function *named(const char *name) {
    if (!name)
        name = "?";
    for (struct function *f = functions; f; f = f->next)
        if (!strcmp(f->name, name))
            return f;
    struct function *f = calloc(1, sizeof *f);
    f->name = strdup(name);
    f->next = functions;
    return functions = f;
}

/* Counts instructions one by one, so that a block that is left early, at a fault, counts exactly. */
static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        struct function *f = by_symbol ? named(qemu_plugin_insn_symbol(insn)) : &all;
        qemu_plugin_register_vcpu_insn_exec_inline(insn, QEMU_PLUGIN_INLINE_ADD_U64, &f->count, 1);
    }
}

static void ended(qemu_plugin_id_t id, void *data) {
    (void)id;
    (void)data;
    char line[4096];
    for (struct function *f = functions; f; f = f->next) {
        all.count += f->count;
        snprintf(line, sizeof line, "function %" PRIu64 " %s\n", f->count, f->name);
        qemu_plugin_outs(line);
    }
    snprintf(line, sizeof line, "%s %" PRIu64 "\n", all.name, all.count);
    qemu_plugin_outs(line);
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                               const void *info, int argc,
                                                               char **argv) {
    (void)info;
    for (int i = 0; i < argc; i++)
        by_symbol |= !strncmp(argv[i], "by=", 3);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
