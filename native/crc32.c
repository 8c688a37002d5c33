/* CRC-32 as zlib computes it (polynomial 0xEDB88320), eight bytes at a time.
 *
 * Ours because zlib's headers are not on every machine that has a compiler.
 */
#include "entries.h"

static uint32_t table[8][256];

void crc32_begin(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        table[0][byte] = crc;
    }
    for (int byte = 0; byte < 256; byte++)
        for (int step = 1; step < 8; step++)
            table[step][byte] = table[step - 1][byte] >> 8 ^ table[0][table[step - 1][byte] & 0xFF];
}

uint32_t crc32_of(uint32_t before, const unsigned char *data, size_t size)
{
    uint32_t crc = ~before;
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = get32(data) ^ crc, high = get32(data + 4);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^ table[4][low >> 24]
            ^ table[3][high & 0xFF] ^ table[2][high >> 8 & 0xFF] ^ table[1][high >> 16 & 0xFF] ^ table[0][high >> 24];
    }
    for (; size; data++, size--)
        crc = crc >> 8 ^ table[0][(crc ^ *data) & 0xFF];
    return ~crc;
}
