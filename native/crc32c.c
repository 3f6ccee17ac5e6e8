/* crc32c.c: three kinds of CRC32C and the arithmetic that joins streams.
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
 */
#include "crc32c.h"

#include "errors.h"

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

static uint32_t slice[SLICE_COUNT][256];
static uint32_t power[POWER_COUNT]; /* power[k] = x^(2^k) mod P */
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

static crc_function find_hardware(int *kind)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return NULL;
    make_lanes();
    *kind = EBK_CRC32C_X86;
    return crc_x86;
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

static crc_function find_hardware(int *kind)
{
    if (!(getauxval(AT_HWCAP) & HWCAP_CRC32)) return NULL;
    *kind = EBK_CRC32C_ARM;
    return crc_arm;
}

#else
static crc_function find_hardware(int *kind)
{
    (void)kind;
    return NULL;
}
#endif

/* ---- choice ----------------------------------------------------------------------- */

/* At load, before any thread can call: later the choice is only read. */
__attribute__((constructor)) static void choose(void)
{
    make_tables();
    chosen_kind = EBK_CRC32C_PORTABLE;
    chosen = find_hardware(&chosen_kind);
    if (chosen == NULL) chosen = crc_portable;
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
    if (kind == EBK_CRC32C_PORTABLE) {
        *out = crc_portable(crc, data, size);
        return EBK_OK;
    }
    if (kind != chosen_kind) return EBK_UNSUPPORTED;
    *out = chosen(crc, data, size);
    return EBK_OK;
}
