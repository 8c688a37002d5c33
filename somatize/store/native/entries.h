/* The format of journal entries, as in somatize/store/journal.py.
 *
 * Words are little-endian. The head, without gaps: size of the rest after the checksum, checksum, kind, state, two
 * unused bytes, size of the summary, nodes, forward, when, took.
 */
#ifndef SOMATIZE_ENTRIES_H
#define SOMATIZE_ENTRIES_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { RECORD = 1, PART = 2, END = 3, LATE = 4, ABOUT = 5 };
enum { SIZE_AT = 0, CRC_AT = 4, KIND_AT = 8, STATE_AT = 9, SUMMED_AT = 12, NODES_AT = 16, FORWARD_AT = 20, WHEN_AT = 28,
       TOOK_AT = 36, ENTRY_HEAD = 44, UNSIZED = 8 };

#define NO_TIME UINT64_MAX
#define OWN UINT64_MAX

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LITTLE32(word) (word)
#define LITTLE64(word) (word)
#else
#define LITTLE32(word) __builtin_bswap32(word)
#define LITTLE64(word) __builtin_bswap64(word)
#endif

static inline void put32(unsigned char *to, uint32_t value)
{
    value = LITTLE32(value);
    memcpy(to, &value, 4);
}

static inline void put64(unsigned char *to, uint64_t value)
{
    value = LITTLE64(value);
    memcpy(to, &value, 8);
}

static inline uint32_t get32(const unsigned char *from)
{
    uint32_t value;
    memcpy(&value, from, 4);
    return LITTLE32(value);
}

static inline uint64_t get64(const unsigned char *from)
{
    uint64_t value;
    memcpy(&value, from, 8);
    return LITTLE64(value);
}

/* The CRC-32 of zlib. `crc32_begin` is called once before. */
void crc32_begin(void);
uint32_t crc32_of(uint32_t before, const unsigned char *data, size_t size);

extern PyType_Spec pen_spec;
extern PyObject *LOCK_TYPE;
int pen_begin(void);
PyObject *heads(PyObject *module, PyObject *arguments);
PyObject *within(PyObject *module, PyObject *arguments);
PyObject *highest(PyObject *module, PyObject *column);
PyObject *totals(PyObject *module, PyObject *arguments);
PyObject *rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif
