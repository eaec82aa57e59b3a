// The kernels' arithmetic for Poly1305 at the bounds that their comments allow, against
// multiplication as in school. Through ciphertexts these bounds are met by chance only.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "packetlane.cu"

u32 thread_index() { abort(); }
u32 shuffle(u32, u32, u32) { abort(); }

namespace {

// Of 32 bits each, the lowest first.
using Words = std::vector<u32>;

Words plus(const Words &a, const Words &b) {
    Words sum;
    u64 carry = 0;
    for (size_t i = 0; i < a.size() || i < b.size() || carry; i++) {
        carry += (u64)(i < a.size() ? a[i] : 0) + (i < b.size() ? b[i] : 0);
        sum.push_back((u32)carry);
        carry >>= 32;
    }
    return sum;
}

Words shifted(const Words &a, u32 bits) {
    Words result(bits / 32);
    u32 carry = 0;
    for (u32 word : a) {
        result.push_back(carry | word << bits % 32);
        carry = bits % 32 ? word >> (32 - bits % 32) : 0;
    }
    result.push_back(carry);
    return result;
}

Words product(const Words &a, const Words &b) {
    Words sum;
    for (size_t i = 0; i < b.size(); i++)
        for (u32 bit = 0; bit < 32; bit++)
            if (b[i] >> bit & 1)
                sum = plus(sum, shifted(a, 32 * i + bit));
    return sum;
}

// Modulo 2^130 - 5, in five words.
Words reduced(Words a) {
    a.resize(a.size() < 5 ? 5 : a.size());
    while (a.size() > 5 || a[4] > 3) {
        Words above;
        for (size_t i = 4; i < a.size(); i++)
            above.push_back(a[i] >> 2 | (i + 1 < a.size() ? a[i + 1] << 30 : 0));
        Words below(a.begin(), a.begin() + 5);
        below[4] &= 3;
        a = plus(below, product(above, {5}));
        while (a.size() > 5 && a.back() == 0)
            a.pop_back();
        a.resize(a.size() < 5 ? 5 : a.size());
    }
    Words more = plus(a, {5});
    if (more[4] >> 2) {
        more[4] &= 3, more.resize(5);
        return more;
    }
    return a;
}

Words of_words(const u32 h[5]) { return Words(h, h + 5); }

Words of_limbs(const u32 l[5]) {
    Words sum;
    for (u32 i = 0; i < 5; i++)
        sum = plus(sum, shifted({l[i]}, 26 * i));
    return sum;
}

void expect(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "host_cpp: %s\n", what);
        exit(3);
    }
}

u64 state = 1;

// At most `most`, and often at an end of what there is.
u32 number(u32 most) {
    u64 z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    switch (z % 5) {
    case 0:
        return 0;
    case 1:
    case 2:
        return most;
    case 3:
        return most - (u32)(z >> 8) % (most < 8 ? most + 1 : 8);
    default:
        return (u32)(z >> 32) % (most < ~0u ? most + 1 : most);
    }
}

} // namespace

int main() {
    for (int run = 0; run < 6000; run++) {
        u32 h[5], r[4];
        for (int i = 0; i < 4; i++)
            h[i] = number(~0u), r[i] = number(0x0fffffff) & (i ? ~3u : ~0u);
        h[4] = number(8);

        u32 l[5], back[5];
        to_limbs(l, h);
        for (u32 limb : l)
            expect(h[4] > 6 || limb < 1u << 27, "to_limbs leaves too much");
        expect(reduced(of_limbs(l)) == reduced(of_words(h)), "to_limbs");

        Words wanted = reduced(product(of_words(h), Words(r, r + 4)));
        u32 p[5] = {h[0], h[1], h[2], h[3], h[4]};
        times_r(p, r);
        expect(p[4] <= 4, "times_r leaves too much");
        expect(reduced(of_words(p)) == wanted, "times_r");

        u32 a[5], b[5];
        for (int i = 0; i < 5; i++)
            a[i] = number((1u << 29) - 1), b[i] = number((1 << 26) + (1 << 11) - 1);
        to_words(back, a);
        expect(back[4] <= 4, "to_words leaves too much");
        expect(reduced(of_words(back)) == reduced(of_limbs(a)), "to_words");
        wanted = reduced(product(of_limbs(a), of_limbs(b)));
        times(a, b);
        for (u32 limb : a)
            expect(limb < (1 << 26) + (1 << 11), "times leaves too much");
        expect(reduced(of_limbs(a)) == wanted, "times");

        // About the prime too, where a number has two forms.
        u32 s[4], t[5] = {h[0], h[1], h[2], h[3], h[4]};
        for (u32 &word : s)
            word = number(~0u);
        if (run % 2) {
            t[0] = number(~0u), t[1] = t[2] = t[3] = ~0u, t[4] = 3;
            if (run % 4 == 1)
                t[0] = ~0u - 8 + (u32)run / 4 % 9;
        }
        Words sum = plus(reduced(of_words(t)), Words(s, s + 4));
        sum.resize(4);
        const Quad tag = finish(t, s);
        expect(Words(tag.w, tag.w + 4) == sum, "finish");
    }
    puts("host_cpp: 6000 products of each kind");
    return 0;
}
