// ChaCha20-Poly1305 (RFC 8439) over a list of packets, in place: seal and open.
//
// A packet is worked on by LANES threads of a warp: 1, 4 or 32, by its length; a longer
// one is cut into chunks with a warp each. A thread computes whole ChaCha20 blocks and
// keeps one in registers. With several lanes the blocks go round, and the packet's last
// block falls to the last lane: lane l has every LANES-th block, and a round in which a
// lane would be before the packet's beginning comes first, not last. What the lanes have
// summed up for Poly1305 is then a polynomial in r^(4 LANES), and is put together at the
// end, in log2(LANES) steps.
//
// No branch and no address depends on a key, a keystream, a text or a computed tag; the
// verdict of a tag is public.
//
// Neighbouring packets may share a word of memory, and other threads write there at the
// same time. So nothing outside of a packet's own text and tag is read or written, not
// even with the value that it had.
#include "prelude.h"

struct alignas(16) Packet {
    u32 text;      // offset in `bytes`, any alignment; the tag lies behind the text
    u32 text_len;
    u32 key;       // index in `keys`
    u32 counter;   // the nonce's first four bytes, little-endian
};

struct Key {
    Quad key[2];
    u32 nonce_tail[2];
    u32 aad; // offset in `bytes`
    u32 aad_len;
};

struct Chunk {
    u32 packet; // index in `packets`
    u32 first;  // offset in its text, a multiple of CHUNK
};

// With the block that is the Poly1305 key 256 ChaCha20 blocks: 8 in each lane of a warp.
#define CHUNK (255 * 64)
// Words of `partial` for each chunk.
#define PARTIAL 3

// What a thread does with a piece of text.
enum Work {
    SEAL,  // encrypt, and absorb what comes out
    CHECK, // absorb
    CRYPT, // decrypt
};

// ------------------------------------------------------------------ memory

// Bytes `from` to `to` of the word at p, the others zero.
INLINE u32 load_bytes(const u8 *p, u32 from, u32 to) {
    u32 word = 0;
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (i >= from && i < to)
            word |= (u32)p[i] << (8 * i);
    return word;
}

INLINE void store_bytes(u8 *p, u32 from, u32 to, u32 word) {
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (i >= from && i < to)
            p[i] = (u8)(word >> (8 * i));
}

INLINE bool is_aligned(const u8 *p) { return ((u64)p & 15) == 0; }

// The 16 bytes at p, whatever its alignment, and no other.
INLINE Quad load(const u8 *p) {
    if (is_aligned(p))
        return *(const Quad *)p;
    const u32 skew = (u32)(u64)p & 3;
    const u32 *words = (const u32 *)(p - skew);
    const u32 first = load_bytes(p - skew, skew, 4), last = load_bytes(p - skew + 16, 0, skew);
    const u32 a = words[1], b = words[2], c = words[3], bits = 8 * skew;
    return {{funnel(first, a, bits), funnel(a, b, bits), funnel(b, c, bits), funnel(c, last, bits)}};
}

INLINE void store(u8 *p, const Quad &q) {
    if (is_aligned(p)) {
        *(Quad *)p = q;
        return;
    }
    const u32 skew = (u32)(u64)p & 3, bits = 32 - 8 * skew;
    u32 *words = (u32 *)(p - skew);
    store_bytes(p - skew, skew, 4, q.w[0] << (8 * skew));
#pragma unroll
    for (int i = 1; i < 4; i++)
        words[i] = funnel(q.w[i - 1], q.w[i], bits);
    store_bytes(p - skew + 16, 0, skew, funnel(q.w[3], 0, bits));
}

// x ^= the 64 bytes at p.
INLINE void load_block(u32 x[16], const u8 *p) {
    if (is_aligned(p)) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const Quad q = ((const Quad *)p)[i];
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[4 * i + j] ^= q.w[j];
        }
        return;
    }
    const u32 skew = (u32)(u64)p & 3, bits = 8 * skew;
    const u32 *words = (const u32 *)(p - skew);
    u32 word = load_bytes(p - skew, skew, 4);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const u32 next = i < 15 ? words[i + 1] : load_bytes(p - skew + 64, 0, skew);
        x[i] ^= funnel(word, next, bits);
        word = next;
    }
}

INLINE void store_block(u8 *p, const u32 x[16]) {
    if (is_aligned(p)) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            ((Quad *)p)[i] = {{x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]}};
        return;
    }
    const u32 skew = (u32)(u64)p & 3, bits = 32 - 8 * skew;
    u32 *words = (u32 *)(p - skew);
    store_bytes(p - skew, skew, 4, x[0] << (8 * skew));
#pragma unroll
    for (int i = 1; i < 16; i++)
        words[i] = funnel(x[i - 1], x[i], bits);
    store_bytes(p - skew + 64, 0, skew, funnel(x[15], 0, bits));
}

// All bits of the word that begins at byte 4 i, up to byte n.
INLINE u32 mask(u32 i, u32 n) {
    return n >= 4 * i + 4 ? ~0u : n <= 4 * i ? 0 : (1u << (8 * (n - 4 * i))) - 1;
}

// ---------------------------------------------------------------- ChaCha20

INLINE u32 rotate(u32 x, u32 n) { return x << n | x >> (32 - n); }

INLINE void quarter_round(u32 &a, u32 &b, u32 &c, u32 &d) {
    a += b, d = rotate(d ^ a, 16);
    c += d, b = rotate(b ^ c, 12);
    a += b, d = rotate(d ^ a, 8);
    c += d, b = rotate(b ^ c, 7);
}

// Block number `block` of the packet's keystream.
INLINE void chacha20(u32 x[16], const Packet &packet, const Key *key, u32 block) {
    const Quad constants = {{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}};
    const Quad low = key->key[0], high = key->key[1];
    const Quad last = {{block, packet.counter, key->nonce_tail[0], key->nonce_tail[1]}};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = constants.w[i], x[4 + i] = low.w[i];
        x[8 + i] = high.w[i], x[12 + i] = last.w[i];
    }
#pragma unroll 1
    for (int i = 0; i < 10; i++) {
        quarter_round(x[0], x[4], x[8], x[12]);
        quarter_round(x[1], x[5], x[9], x[13]);
        quarter_round(x[2], x[6], x[10], x[14]);
        quarter_round(x[3], x[7], x[11], x[15]);
        quarter_round(x[0], x[5], x[10], x[15]);
        quarter_round(x[1], x[6], x[11], x[12]);
        quarter_round(x[2], x[7], x[8], x[13]);
        quarter_round(x[3], x[4], x[9], x[14]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] += constants.w[i], x[4 + i] += low.w[i];
        x[8 + i] += high.w[i], x[12 + i] += last.w[i];
    }
}

// ---------------------------------------------------------------- Poly1305
//
// Numbers modulo 2^130 - 5 have two forms: five words of which the last is at most 8,
// which r multiplies (`times_r`: r is clamped, so that its words times 5/4 are whole and
// four products fit into 64 bits), and five limbs of 26 bits, which multiply one another
// (`times`) and may be sums: each below 2^29. What `times` leaves is below 2^26 + 2^11, what
// `to_limbs` leaves below 2^27, and no more than those two and five of the former are added.

struct OneTime {
    u32 r[4];
    u32 s[4];
};

INLINE OneTime one_time(const u32 block[8]) {
    OneTime key;
    key.r[0] = block[0] & 0x0fffffff;
#pragma unroll
    for (int i = 1; i < 4; i++)
        key.r[i] = block[i] & 0x0ffffffc;
#pragma unroll
    for (int i = 0; i < 4; i++)
        key.s[i] = block[4 + i];
    return key;
}

// What is above 2^130 comes back five times. h[4] may be anything up to 2^32 / 1.25.
INLINE void fold(u32 h[5]) {
    const u32 above = (h[4] >> 2) + (h[4] & ~3u);
    h[4] &= 3;
    add(h, above, 0, 0, 0, 0);
}

// h *= r. Of h, the last word is at most 8; afterwards at most 4.
INLINE void times_r(u32 h[5], const u32 r[4]) {
    const u32 s1 = r[1] + (r[1] >> 2), s2 = r[2] + (r[2] >> 2), s3 = r[3] + (r[3] >> 2);
    u64 a = 0, b = multiply(h[4], s1, 0), c = multiply(h[4], s2, 0), d = multiply(h[4], s3, 0);
    a = multiply(h[0], r[0], multiply(h[1], s3, multiply(h[2], s2, multiply(h[3], s1, a))));
    b = multiply(h[0], r[1], multiply(h[1], r[0], multiply(h[2], s3, multiply(h[3], s2, b))));
    c = multiply(h[0], r[2], multiply(h[1], r[1], multiply(h[2], r[0], multiply(h[3], s3, c))));
    d = multiply(h[0], r[3], multiply(h[1], r[2], multiply(h[2], r[1], multiply(h[3], r[0], d))));
    h[0] = (u32)a, h[1] = (u32)b, h[2] = (u32)c, h[3] = (u32)d, h[4] *= r[0];
    add(h, 0, (u32)(a >> 32), (u32)(b >> 32), (u32)(c >> 32), (u32)(d >> 32));
    fold(h);
}

INLINE void to_limbs(u32 l[5], const u32 h[5]) {
    const u32 m = 0x3ffffff;
    l[0] = h[0] & m, l[1] = funnel(h[0], h[1], 26) & m, l[2] = funnel(h[1], h[2], 20) & m;
    l[3] = funnel(h[2], h[3], 14) & m, l[4] = funnel(h[3], h[4], 8);
}

INLINE void to_words(u32 h[5], const u32 l[5]) {
    h[0] = l[0], h[1] = l[1] >> 6, h[2] = l[2] >> 12, h[3] = l[3] >> 18, h[4] = l[4] >> 24;
    add(h, l[1] << 26, l[2] << 20, l[3] << 14, l[4] << 8, 0);
    fold(h);
}

// a *= b, both in limbs, those of b below 2^26 + 2^11.
INLINE void times(u32 a[5], const u32 b[5]) {
    u64 d[5];
#pragma unroll
    for (int i = 0; i < 5; i++) {
        d[i] = 0;
#pragma unroll
        for (int j = 0; j < 5; j++)
            d[i] = multiply(a[j], j <= i ? b[i - j] : 5 * b[5 + i - j], d[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        d[i + 1] += d[i] >> 26;
#pragma unroll
    for (int i = 0; i < 5; i++)
        a[i] = (u32)d[i] & 0x3ffffff;
    // The carry out of the last limb, below 2^34, comes back five times.
    const u64 back = a[0] + (d[4] >> 26) * 5;
    a[0] = (u32)back & 0x3ffffff;
    a[1] += (u32)(back >> 26);
}

INLINE void square(u32 a[5]) {
    const u32 b[5] = {a[0], a[1], a[2], a[3], a[4]};
    times(a, b);
}

// h += the piece, with the bit that marks a whole one: every piece of an AEAD's message
// is whole, since AAD and text are padded with zeros.
INLINE void absorb(u32 h[5], const Quad &m) { add(h, m.w[0], m.w[1], m.w[2], m.w[3], 1); }

// The tag: h reduced, plus s.
INLINE Quad finish(u32 h[5], const u32 s[4]) {
    fold(h);
    u32 g[5] = {h[0], h[1], h[2], h[3], h[4]};
    add(g, 5, 0, 0, 0, 0);
    // Where h + 5 reaches 2^130, h is at least the prime.
    const u32 reached = 0u - (g[4] >> 2);
#pragma unroll
    for (int i = 0; i < 4; i++)
        h[i] ^= (h[i] ^ g[i]) & reached;
    add(h, s[0], s[1], s[2], s[3], 0);
    return {{h[0], h[1], h[2], h[3]}};
}

INLINE Quad lengths(u32 aad_len, u32 text_len) { return {{aad_len, 0, text_len, 0}}; }

// h = h r^blocks + the AAD, each piece absorbed and then multiplied; the last multiplied
// only if `through`.
INLINE void absorb_aad(u32 h[5], const u32 r[4], const u8 *aad, u32 len, bool through) {
#pragma unroll 1
    while (len > 0) {
        // Exactly the AAD's own bytes: behind it may lie what another thread writes.
        Quad m;
        const u32 n = len < 16 ? len : 16;
        if (n == 16) {
            m = load(aad);
        } else {
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                m.w[i] = load_bytes(aad + 4 * i, 0, n > 4 * i ? n - 4 * i : 0);
        }
        absorb(h, m);
        aad += n, len -= n;
        if (through || len > 0)
            times_r(h, r);
    }
}

// ------------------------------------------------------------- one block

// The first n (1 to 16) of 16 bytes of text; k is the keystream. Past the end lies the
// packet's own tag, which is read and put back as it was.
template <int WORK> INLINE void piece(u8 *text, u32 n, u32 k0, u32 k1, u32 k2, u32 k3, u32 h[5]) {
    const u32 k[4] = {k0, k1, k2, k3};
    Quad q = load(text), m;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        m.w[i] = q.w[i] & mask(i, n);
        if (WORK != CHECK) {
            q.w[i] ^= k[i] & mask(i, n);
            if (WORK == SEAL)
                m.w[i] = q.w[i] & mask(i, n);
        }
    }
    if (WORK != CHECK)
        store(text, q);
    if (WORK != CRYPT)
        absorb(h, m);
}

// n (1 to 64) bytes of text, x the keystream's block. Each piece is absorbed into h and
// then multiplied by r, the last one only if `through`.
template <int WORK> INLINE void text_block(u8 *text, u32 n, u32 x[16], u32 h[5], const u32 r[4], bool through) {
    if (n == 64) {
        if (WORK == CHECK) {
#pragma unroll
            for (int i = 0; i < 16; i++)
                x[i] = 0;
        }
        load_block(x, text);
        if (WORK != CHECK)
            store_block(text, x);
        if (WORK != CRYPT) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                absorb(h, {{x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]}});
                if (i < 3 || through)
                    times_r(h, r);
            }
        }
        return;
    }
#pragma unroll 1
    while (true) {
        const u32 now = n < 16 ? n : 16;
        piece<WORK>(text, now, x[0], x[1], x[2], x[3], h);
        text += 16, n -= now;
        if (WORK != CRYPT && (through || n > 0))
            times_r(h, r);
        if (n == 0)
            break;
        if (WORK != CHECK) {
#pragma unroll
            for (int i = 0; i < 12; i++)
                x[i] = x[i + 4];
        }
    }
}

INLINE u32 blocks_of(u32 len) { return len / 64 + (len % 64 != 0); }

// ------------------------------------------------- a packet in one thread

// Absorbs the packet (SEAL: encrypts it first); the tag comes out.
template <int WORK> INLINE Quad walk_alone(u8 *bytes, const Packet &packet, const Key *key) {
    u32 x[16], h[5] = {0, 0, 0, 0, 0};
    chacha20(x, packet, key, 0);
    const OneTime once = one_time(x);
    absorb_aad(h, once.r, bytes + key->aad, key->aad_len, true);
    u8 *text = bytes + packet.text;
    u32 left = packet.text_len;
#pragma unroll 1
    for (u32 block = 1; left > 0; block++) {
        const u32 n = left < 64 ? left : 64;
        if (WORK == SEAL)
            chacha20(x, packet, key, block);
        text_block<WORK>(text, n, x, h, once.r, true);
        text += n, left -= n;
    }
    absorb(h, lengths(key->aad_len, packet.text_len));
    times_r(h, once.r);
    return finish(h, once.s);
}

// -------------------------------------------- a packet in several threads

// Decrypts the text from `first` on, `len` bytes, with LANES threads: each the blocks that
// it has absorbed in `walk`, so that nothing has to be ordered between threads.
template <int LANES> INLINE void decrypt(u8 *text, const Packet &packet, const Key *key, u32 first, u32 len) {
    const u32 blocks = 1 + blocks_of(len), before = (LANES - blocks % LANES) % LANES;
#pragma unroll 1
    for (u32 i = thread_index() % LANES; i < before + blocks; i += LANES) {
        if (i <= before)
            continue;
        u32 x[16];
        const u32 block = i - before, at = 64 * (block - 1), left = len - at;
        chacha20(x, packet, key, first / 64 + block);
        text_block<CRYPT>(text + first + at, left < 64 ? left : 64, x, 0, 0, false);
    }
}

// Sum over the lanes of h e^(LANES - 1 - lane), in the last lane; all in limbs.
template <int LANES> INLINE void gather(u32 h[5], u32 e[5]) {
    const u32 lane = thread_index() % LANES;
#pragma unroll 1
    for (u32 step = 1; step < LANES; step *= 2) {
        u32 left[5];
#pragma unroll
        for (int i = 0; i < 5; i++) {
            left[i] = shuffle(h[i], lane - step, LANES);
            left[i] = lane >= step ? left[i] : 0;
        }
        times(left, e);
#pragma unroll
        for (int i = 0; i < 5; i++)
            h[i] += left[i];
        if (2 * step < LANES)
            square(e);
    }
}

// Absorbs `len` bytes of the text from `first` on (SEAL: encrypts them first), and before
// them the AAD if `first` is the beginning. In the last lane `sum` is then the polynomial,
// in words, its last coefficient not multiplied; `once` is the one-time key, in all lanes.
template <int LANES, int WORK>
INLINE void walk(u8 *bytes, const Packet &packet, const Key *key, u32 first, u32 len, u32 sum[5], OneTime &once) {
    const u32 lane = thread_index() % LANES;
    // Block 0 is the one that is the one-time key, and stands for the AAD; then the text.
    const u32 blocks = 1 + blocks_of(len), rounds = (blocks + LANES - 1) / LANES;
    const u32 before = rounds * LANES - blocks; // so many lanes have nothing in round 0
    u32 x[16], r_step[5], h[5] = {0, 0, 0, 0, 0}, acc[5];
    u32 last = 0;
#pragma unroll 1
    for (u32 round = 0; round < rounds; round++) {
        const u32 block = round * LANES + lane - before; // in round 0 "negative" if none
        const bool some = round > 0 || lane >= before;
        if (WORK == SEAL)
            chacha20(x, packet, key, block == 0 ? 0 : first / 64 + block);
        if (round == 0) {
            if (WORK == SEAL) {
                u32 y[8];
#pragma unroll
                for (int i = 0; i < 8; i++)
                    y[i] = shuffle(x[i], before, LANES);
                once = one_time(y);
            } else {
                chacha20(x, packet, key, 0);
                once = one_time(x);
            }
        }
#pragma unroll
        for (int i = 0; i < 5; i++)
            acc[i] = 0;
        if (some && block == 0 && first == 0)
            absorb_aad(acc, once.r, bytes + key->aad, key->aad_len, false);
        if (some && block > 0) {
            const u32 at = 64 * (block - 1), n = len - at < 64 ? len - at : 64;
            text_block<WORK>(bytes + packet.text + first + at, n, x, acc, once.r, false);
            last = (n + 15) / 16;
        }
        // Only now, when the block is out of the registers.
        if (round == 0) {
            const u32 r[5] = {once.r[0], once.r[1], once.r[2], once.r[3], 0};
            to_limbs(r_step, r);
#pragma unroll 1
            for (u32 power = 1; power < 4 * LANES; power *= 2)
                square(r_step);
        }
        // The last lane's last block stays apart: it need not be whole.
        if (round + 1 < rounds || lane + 1 < LANES) {
            u32 l[5];
            to_limbs(l, acc);
            if (round > 0)
                times(h, r_step);
#pragma unroll
            for (int i = 0; i < 5; i++)
                h[i] += l[i];
        }
    }
    // So all others lie whole blocks before it, the last lane's own before the first's.
    u32 e[5];
    const u32 r[5] = {once.r[0], once.r[1], once.r[2], once.r[3], 0};
    to_limbs(e, r);
#pragma unroll 1
    for (int i = 0; i < 2; i++)
        square(e);
#pragma unroll
    for (int i = 0; i < 5; i++)
        h[i] = shuffle(h[i], lane - 1, LANES);
    gather<LANES>(h, e);
    to_words(sum, h);
#pragma unroll 1
    for (u32 i = 0; i < last; i++)
        times_r(sum, once.r);
    add(sum, acc[0], acc[1], acc[2], acc[3], acc[4]);
    fold(sum);
}

// The tag from the polynomial over AAD and text.
INLINE Quad tag_of(u32 sum[5], const OneTime &once, const Packet &packet, const Key *key) {
    times_r(sum, once.r);
    absorb(sum, lengths(key->aad_len, packet.text_len));
    times_r(sum, once.r);
    return finish(sum, once.s);
}

INLINE u8 *tag_place(u8 *bytes, const Packet &packet) { return bytes + packet.text + (u64)packet.text_len; }

// 1 if the packet's tag is this one, else 0.
INLINE u32 verdict(const u8 *place, const Quad &tag) {
    const Quad sent = load(place);
    u32 different = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        different |= sent.w[i] ^ tag.w[i];
    return different == 0;
}

// ----------------------------------------------------------------- kernels

#define LIST u8 *bytes, const Packet *packets, const Key *keys, u32 count, u8 *verdicts

KERNEL(seal_1, 7)(LIST) {
    const u32 i = thread_index();
    if (i >= count)
        return;
    const Packet packet = packets[i];
    store(tag_place(bytes, packet), walk_alone<SEAL>(bytes, packet, keys + packet.key));
    verdicts[i] = 1;
}

KERNEL(open_1, 7)(LIST) {
    const u32 i = thread_index();
    if (i >= count)
        return;
    const Packet packet = packets[i];
    const Key *key = keys + packet.key;
    const u32 right = verdict(tag_place(bytes, packet), walk_alone<CHECK>(bytes, packet, key));
    verdicts[i] = (u8)right;
    if (right)
        decrypt<1>(bytes + packet.text, packet, key, 0, packet.text_len);
}

// Every thread of a warp takes part in its shuffles: one that has no packet walks over the
// last one as if it were empty and without AAD, and writes nothing.
template <int LANES> INLINE void seal(LIST) {
    const u32 i = thread_index() / LANES;
    const bool last_lane = thread_index() % LANES == LANES - 1;
    Packet packet = packets[i < count ? i : count - 1];
    const Key *key = keys + packet.key;
    u32 sum[5];
    OneTime once;
    walk<LANES, SEAL>(bytes, packet, key, i < count ? 0 : 1, i < count ? packet.text_len : 0, sum, once);
    if (i < count && last_lane) {
        store(tag_place(bytes, packet), tag_of(sum, once, packet, key));
        verdicts[i] = 1;
    }
}

template <int LANES> INLINE void open(LIST) {
    const u32 i = thread_index() / LANES;
    const bool last_lane = thread_index() % LANES == LANES - 1;
    const Packet packet = packets[i < count ? i : count - 1];
    const Key *key = keys + packet.key;
    u32 sum[5], right = 0;
    OneTime once;
    walk<LANES, CHECK>(bytes, packet, key, i < count ? 0 : 1, i < count ? packet.text_len : 0, sum, once);
    if (i < count && last_lane) {
        right = verdict(tag_place(bytes, packet), tag_of(sum, once, packet, key));
        verdicts[i] = (u8)right;
    }
    if (shuffle(right, LANES - 1, LANES))
        decrypt<LANES>(bytes + packet.text, packet, key, 0, packet.text_len);
}

KERNEL(seal_4, 5)(LIST) { seal<4>(bytes, packets, keys, count, verdicts); }
KERNEL(open_4, 7)(LIST) { open<4>(bytes, packets, keys, count, verdicts); }
KERNEL(seal_32, 5)(LIST) { seal<32>(bytes, packets, keys, count, verdicts); }
KERNEL(open_32, 7)(LIST) { open<32>(bytes, packets, keys, count, verdicts); }

// -------------------------------------------------------- packets in chunks

#define CHUNKS LIST, const Chunk *chunks, u32 chunk_count, u64 *partial

// The length of the chunk that begins at `first`.
INLINE u32 chunk_len(const Packet &packet, u32 first) {
    return packet.text_len - first < CHUNK ? packet.text_len - first : CHUNK;
}

// Seals or checks a chunk; what it adds to the tag goes into `partial`.
template <int WORK> INLINE void chunk(CHUNKS) {
    const u32 i = thread_index() / 32;
    if (i >= chunk_count)
        return;
    const Packet packet = packets[chunks[i].packet];
    const u32 first = chunks[i].first;
    u32 sum[5];
    OneTime once;
    walk<32, WORK>(bytes, packet, keys + packet.key, first, chunk_len(packet, first), sum, once);
    if (thread_index() % 32 == 31) {
        u64 *words = partial + (u64)i * PARTIAL;
        words[0] = sum[0] | (u64)sum[1] << 32;
        words[1] = sum[2] | (u64)sum[3] << 32;
        words[2] = sum[4];
    }
}

INLINE void load_partial(u32 h[5], const u64 *words) {
    h[0] = (u32)words[0], h[1] = (u32)(words[0] >> 32);
    h[2] = (u32)words[1], h[3] = (u32)(words[1] >> 32);
    h[4] = (u32)words[2];
}

// p = r^n, in limbs, n at least 1; r is in limbs.
INLINE void power(u32 p[5], const u32 r[5], u32 n) {
#pragma unroll
    for (int i = 0; i < 5; i++)
        p[i] = r[i];
    u32 bit = 1;
    while (bit <= n / 2)
        bit *= 2;
#pragma unroll 1
    while (bit > 1) {
        bit /= 2;
        square(p);
        if (n & bit)
            times(p, r);
    }
}

// The tag of the packet whose chunks' parts begin at `partial`: in the last lane.
INLINE Quad combine(const Packet &packet, const Key *key, const u64 *partial) {
    const u32 lane = thread_index() % 32;
    const u32 whole = packet.text_len == 0 ? 0 : (packet.text_len - 1) / CHUNK; // before the last
    const u32 rounds = (whole + 31) / 32, before = rounds * 32 - whole;
    u32 x[16], h[5] = {0, 0, 0, 0, 0}, l[5], sum[5], r[5], e[5], e_step[5];
    chacha20(x, packet, key, 0);
    const OneTime once = one_time(x);
    const u32 r_words[5] = {once.r[0], once.r[1], once.r[2], once.r[3], 0};
    to_limbs(r, r_words);
    power(e, r, CHUNK / 16);
    power(e_step, e, 32);
#pragma unroll 1
    for (u32 round = 0; round < rounds; round++) {
        if (round > 0)
            times(h, e_step);
        if (round > 0 || lane >= before) {
            load_partial(sum, partial + (u64)(round * 32 + lane - before) * PARTIAL);
            to_limbs(l, sum);
#pragma unroll
            for (int i = 0; i < 5; i++)
                h[i] += l[i];
        }
    }
    gather<32>(h, e);
    const u32 rest = packet.text_len - whole * CHUNK;
    if (rest > 0) {
        power(e, r, (rest + 15) / 16);
        times(h, e);
    }
    to_words(sum, h);
    load_partial(l, partial + (u64)whole * PARTIAL);
    add(sum, l[0], l[1], l[2], l[3], l[4]);
    fold(sum);
    return tag_of(sum, once, packet, key);
}

KERNEL(seal_chunks, 5)(CHUNKS) {
    chunk<SEAL>(bytes, packets, keys, count, verdicts, chunks, chunk_count, partial);
}

KERNEL(open_chunks, 7)(CHUNKS) {
    chunk<CHECK>(bytes, packets, keys, count, verdicts, chunks, chunk_count, partial);
}

// A packet's tag is the work of its first chunk's warp.
KERNEL(seal_combine, 7)(CHUNKS) {
    const u32 i = thread_index() / 32;
    if (i >= chunk_count || chunks[i].first != 0)
        return;
    const Packet packet = packets[chunks[i].packet];
    const Quad tag = combine(packet, keys + packet.key, partial + (u64)i * PARTIAL);
    if (thread_index() % 32 == 31) {
        store(tag_place(bytes, packet), tag);
        verdicts[chunks[i].packet] = 1;
    }
}

KERNEL(open_combine, 7)(CHUNKS) {
    const u32 i = thread_index() / 32;
    if (i >= chunk_count || chunks[i].first != 0)
        return;
    const Packet packet = packets[chunks[i].packet];
    const Quad tag = combine(packet, keys + packet.key, partial + (u64)i * PARTIAL);
    if (thread_index() % 32 == 31)
        verdicts[chunks[i].packet] = (u8)verdict(tag_place(bytes, packet), tag);
}

KERNEL(open_decrypt, 7)(CHUNKS) {
    const u32 i = thread_index() / 32;
    if (i >= chunk_count || !verdicts[chunks[i].packet])
        return;
    const Packet packet = packets[chunks[i].packet];
    const u32 first = chunks[i].first;
    decrypt<32>(bytes + packet.text, packet, keys + packet.key, first, chunk_len(packet, first));
}
