/* CRC-32 as zlib computes it (polynomial 0xEDB88320), sixteen bytes at a time.
 *
 * Ours because zlib's headers are not on every machine that has a compiler.
 */
#include "entries.h"

static uint32_t table[16][256];

void crc32_begin(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        table[0][byte] = crc;
    }
    for (int byte = 0; byte < 256; byte++)
        for (int step = 1; step < 16; step++)
            table[step][byte] = table[step - 1][byte] >> 8 ^ table[0][table[step - 1][byte] & 0xFF];
}

/* What a word that is followed by so many bytes of the same stride adds. */
static inline uint32_t word(uint32_t bytes, int after)
{
    return table[after + 3][bytes & 0xFF] ^ table[after + 2][bytes >> 8 & 0xFF] ^ table[after + 1][bytes >> 16 & 0xFF]
         ^ table[after][bytes >> 24];
}

uint32_t crc32_of(uint32_t before, const unsigned char *data, size_t size)
{
    uint32_t crc = ~before;
    for (; size >= 16; data += 16, size -= 16)
        crc = word(get32(data) ^ crc, 12) ^ word(get32(data + 4), 8) ^ word(get32(data + 8), 4) ^ word(get32(data + 12), 0);
    for (; size; data++, size--)
        crc = crc >> 8 ^ table[0][(crc ^ *data) & 0xFF];
    return ~crc;
}
