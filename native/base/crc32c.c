/* crc32c.c: four kinds of CRC32C and the arithmetic that joins streams.
 *
 * A CRC register of 32 bits is a polynomial of degree below 32 over GF(2), with bit i
 * standing for x^(31-i) ("reflected"): 0x80000000 is 1. Appending n zero bits
 * multiplies it by x^n modulo P, so the CRC of a + b is crc(a) * x^(8*size_b) + crc(b).
 *
 * The x86 kind runs three independent streams, because the crc32 instruction has a
 * latency of three cycles and a throughput of one:
 *
 *     | lane bytes | lane bytes | lane bytes |
 *       crc a        crc b        crc c          a * x^(16*lane) + b * x^(8*lane) + c
 *
 * The wide kind keeps 256 bytes as they are and folds them onto the next 256: a 128-bit
 * piece is worth the same D bits further on when it is multiplied by x^D modulo P, and
 * carry-less multiplication does that for its two halves. It reads front to back, which
 * is what the processor fetches ahead best. One 64-byte rest is summed by crc32.
 *
 *     | 0 | 1 | 2 | 3 |  ─ x^2048 ─▶  | 0 | 1 | 2 | 3 |  ...  ─ x^1536, x^1024, x^512 ─▶ | 3 |
 */
#include "base/crc32c.h"

#include "base/errors.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define CRC_POLYNOMIAL 0x82F63B78u /* Castagnoli, reflected */
#define CRC_ONE 0x80000000u        /* the polynomial 1, reflected */
#define SLICE_COUNT 8
#define POWER_COUNT 68 /* x^(2^k) for sizes of 64 bits in bytes, hence 67 bits in bits */

typedef uint32_t (*crc_function)(uint32_t crc, const uint8_t *data, size_t size);

#define KIND_COUNT 4

static uint32_t slice[SLICE_COUNT][256];
static uint32_t power[POWER_COUNT]; /* power[k] = x^(2^k) mod P */
static crc_function kinds[KIND_COUNT]; /* NULL: not on this processor */
static crc_function chosen;
static int chosen_kind;

static uint64_t load_u64(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

/* ---- arithmetic modulo P ---------------------------------------------------------- */

static uint32_t times_x(uint32_t a)
{
    return (a >> 1) ^ ((a & 1u) ? CRC_POLYNOMIAL : 0u);
}

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = CRC_ONE; bit != 0; bit >>= 1) {
        if (a & bit) product ^= b;
        b = times_x(b);
    }
    return product;
}

/* x^n mod P for n >= 0. */
static uint32_t x_to_the(uint64_t n)
{
    uint32_t result = CRC_ONE;
    for (int k = 0; n != 0; k++, n >>= 1)
        if (n & 1u) result = multiply(result, power[k]);
    return result;
}

/* x^(8 * size) mod P: 8 * size need not fit in 64 bits. */
static uint32_t x_to_the_bytes(uint64_t size)
{
    uint32_t result = CRC_ONE;
    for (int k = 3; size != 0; k++, size >>= 1)
        if (size & 1u) result = multiply(result, power[k]);
    return result;
}

uint32_t ebk_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b)
{
    return multiply(x_to_the_bytes(size_b), crc_a) ^ crc_b;
}

/* ---- portable: eight tables ------------------------------------------------------- */

static void make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = times_x(crc);
        slice[0][byte] = crc;
    }
    for (int k = 1; k < SLICE_COUNT; k++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = slice[k - 1][byte];
            slice[k][byte] = (before >> 8) ^ slice[0][before & 0xFFu];
        }
    power[0] = times_x(CRC_ONE);
    for (int k = 1; k < POWER_COUNT; k++) power[k] = multiply(power[k - 1], power[k - 1]);
}

static uint32_t crc_portable(uint32_t crc, const uint8_t *data, size_t size)
{
    crc = ~crc;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = load_u64(data) ^ crc;
        crc = slice[7][word & 0xFFu] ^ slice[6][(word >> 8) & 0xFFu] ^
              slice[5][(word >> 16) & 0xFFu] ^ slice[4][(word >> 24) & 0xFFu] ^
              slice[3][(word >> 32) & 0xFFu] ^ slice[2][(word >> 40) & 0xFFu] ^
              slice[1][(word >> 48) & 0xFFu] ^ slice[0][word >> 56];
    }
    for (; size > 0; data++, size--) crc = (crc >> 8) ^ slice[0][(crc ^ *data) & 0xFFu];
    return ~crc;
}

/* ---- x86: three streams of the crc32 instruction ---------------------------------- */

#if defined(__x86_64__)
#define LANE_COUNT 3
#define LANE_SIZES 3

/* A lane of n bytes and the factors that move its CRC one and two lanes on. A factor is
 * x^(8n-33): the carry-less product of two reflected values stands one bit low, and the
 * crc32 instruction that reduces it multiplies by x^32. */
struct lane {
    size_t bytes;
    uint32_t one_on, two_on;
};
static struct lane lanes[LANE_SIZES] = {{4096, 0, 0}, {512, 0, 0}, {128, 0, 0}};

static void make_lanes(void)
{
    for (int i = 0; i < LANE_SIZES; i++) {
        lanes[i].one_on = x_to_the(8 * lanes[i].bytes - 33);
        lanes[i].two_on = x_to_the(16 * lanes[i].bytes - 33);
    }
}

__attribute__((target("sse4.2,pclmul")))
static inline uint64_t move_on(uint64_t crc, uint32_t factor)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc),
                                           _mm_cvtsi64_si128((int64_t)factor), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul")))
static uint32_t crc_x86(uint32_t start, const uint8_t *data, size_t size)
{
    uint64_t a = (uint32_t)~start;
    for (int i = 0; i < LANE_SIZES; i++) {
        const size_t bytes = lanes[i].bytes;
        while (size >= LANE_COUNT * bytes) {
            uint64_t b = 0, c = 0;
            for (size_t at = 0; at < bytes; at += 8) {
                a = _mm_crc32_u64(a, load_u64(data + at));
                b = _mm_crc32_u64(b, load_u64(data + bytes + at));
                c = _mm_crc32_u64(c, load_u64(data + 2 * bytes + at));
            }
            a = move_on(a, lanes[i].two_on) ^ move_on(b, lanes[i].one_on) ^ c;
            data += LANE_COUNT * bytes;
            size -= LANE_COUNT * bytes;
        }
    }
    for (; size >= 8; data += 8, size -= 8) a = _mm_crc32_u64(a, load_u64(data));
    for (; size > 0; data++, size--) a = _mm_crc32_u8((uint32_t)a, *data);
    return ~(uint32_t)a;
}

#define VECTOR_BYTES 64u
#define STEP_VECTORS 4u
#define STEP_BYTES (STEP_VECTORS * VECTOR_BYTES)

/* fold[n - 1]: what moves the halves of a 128-bit piece n vectors on. A carry-less product of two reflected values of 64
 * bits stands one bit low, and the half that comes first in memory is worth x^64 more. */
static struct fold {
    uint64_t first, second;
} folds[STEP_VECTORS];

static void make_folds(void)
{
    for (uint32_t n = 1; n <= STEP_VECTORS; n++) {
        const uint64_t bits = 8 * VECTOR_BYTES * n;
        folds[n - 1] = (struct fold){.first = (uint64_t)x_to_the(bits + 63) << 32,
                                     .second = (uint64_t)x_to_the(bits - 1) << 32};
    }
}

#define WIDE __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

WIDE static inline __m512i fold_by(uint32_t vectors)
{
    const struct fold *fold = &folds[vectors - 1];
    return _mm512_set4_epi64((long long)fold->second, (long long)fold->first, (long long)fold->second,
                             (long long)fold->first);
}

WIDE static inline __m512i fold_onto(__m512i vector, __m512i factors, __m512i next)
{
    const __m512i first = _mm512_clmulepi64_epi128(vector, factors, 0x00);
    const __m512i second = _mm512_clmulepi64_epi128(vector, factors, 0x11);
    return _mm512_ternarylogic_epi64(first, second, next, 0x96); /* exclusive or of three */
}

WIDE static uint32_t crc_x86_wide(uint32_t start, const uint8_t *data, size_t size)
{
    if (size < STEP_BYTES) return crc_x86(start, data, size);
    __m512i at[STEP_VECTORS];
    for (uint32_t i = 0; i < STEP_VECTORS; i++) at[i] = _mm512_loadu_si512(data + i * VECTOR_BYTES);
    at[0] = _mm512_xor_si512(at[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~start)));
    const __m512i by_four = fold_by(4), by_one = fold_by(1);
    for (data += STEP_BYTES, size -= STEP_BYTES; size >= STEP_BYTES; data += STEP_BYTES, size -= STEP_BYTES)
        for (uint32_t i = 0; i < STEP_VECTORS; i++)
            at[i] = fold_onto(at[i], by_four, _mm512_loadu_si512(data + i * VECTOR_BYTES));
    __m512i rest = fold_onto(at[0], fold_by(3), at[3]);
    rest = fold_onto(at[1], fold_by(2), rest);
    rest = fold_onto(at[2], by_one, rest);
    for (; size >= VECTOR_BYTES; data += VECTOR_BYTES, size -= VECTOR_BYTES)
        rest = fold_onto(rest, by_one, _mm512_loadu_si512(data));
    uint8_t bytes[VECTOR_BYTES];
    _mm512_storeu_si512(bytes, rest);
    uint64_t crc = 0; /* The start is in the bytes already. */
    for (size_t i = 0; i < VECTOR_BYTES; i += 8) crc = _mm_crc32_u64(crc, load_u64(bytes + i));
    for (; size >= 8; data += 8, size -= 8) crc = _mm_crc32_u64(crc, load_u64(data));
    for (; size > 0; data++, size--) crc = _mm_crc32_u8((uint32_t)crc, *data);
    return ~(uint32_t)crc;
}

static int find_hardware(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return EBK_CRC32C_PORTABLE;
    make_lanes();
    kinds[EBK_CRC32C_X86] = crc_x86;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("vpclmulqdq")) return EBK_CRC32C_X86;
    make_folds();
    kinds[EBK_CRC32C_X86_WIDE] = crc_x86_wide;
    return EBK_CRC32C_X86_WIDE;
}

/* ---- aarch64 ---------------------------------------------------------------------- */

#elif defined(__aarch64__) && defined(__linux__)
__attribute__((target("+crc")))
static uint32_t crc_arm(uint32_t crc, const uint8_t *data, size_t size)
{
    crc = ~crc;
    for (; size >= 8; data += 8, size -= 8) crc = __crc32cd(crc, load_u64(data));
    for (; size > 0; data++, size--) crc = __crc32cb(crc, *data);
    return ~crc;
}

static int find_hardware(void)
{
    if (!(getauxval(AT_HWCAP) & HWCAP_CRC32)) return EBK_CRC32C_PORTABLE;
    kinds[EBK_CRC32C_ARM] = crc_arm;
    return EBK_CRC32C_ARM;
}

#else
static int find_hardware(void)
{
    return EBK_CRC32C_PORTABLE;
}
#endif

/* ---- choice ----------------------------------------------------------------------- */

/* At load, before any thread can call: later the choice is only read. */
__attribute__((constructor)) static void choose(void)
{
    make_tables();
    kinds[EBK_CRC32C_PORTABLE] = crc_portable;
    chosen_kind = find_hardware();
    chosen = kinds[chosen_kind];
}

uint32_t ebk_crc32c(uint32_t crc, const void *data, size_t size)
{
    return chosen(crc, data, size);
}

int ebk_crc32c_kind(void)
{
    return chosen_kind;
}

int ebk_crc32c_with(int kind, uint32_t crc, const void *data, size_t size, uint32_t *out)
{
    if (kind < 0 || kind >= KIND_COUNT || kinds[kind] == NULL) return EBK_UNSUPPORTED;
    *out = kinds[kind](crc, data, size);
    return EBK_OK;
}
