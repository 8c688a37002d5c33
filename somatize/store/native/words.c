/* words: a column of whole numbers in the fewest bytes, as record_format.pack_integers says it. */
#include "entries.h"

static const char *pack(const int64_t *words, size_t count, unsigned char *to, size_t *size)
{
    int64_t low = words[0], high = words[0];
    int following = 1;
    for (size_t i = 1; i < count; i++) {
        following &= words[i - 1] != INT64_MAX && words[i] == words[i - 1] + 1;
        low = words[i] < low ? words[i] : low;
        high = words[i] > high ? words[i] : high;
    }
    if (following || low == high) {
        *size = 8;
        put64(to, (uint64_t)words[0]);
        return following ? "r" : "=";
    }
    size_t width = low < 0 ? 8 : high < 1LL << 8 ? 1 : high < 1LL << 16 ? 2 : high < 1LL << 32 ? 4 : 8;
    *size = width * count;
    for (size_t i = 0; i < count; i++)
        for (size_t byte = 0; byte < width; byte++)
            *to++ = (unsigned char)((uint64_t)words[i] >> 8 * byte);
    return low < 0 ? "q" : width == 1 ? "B" : width == 2 ? "H" : width == 4 ? "I" : "Q";
}

PyObject *words(PyObject *module, PyObject *column)
{
    Py_buffer given;
    size_t size;
    (void)module;
    if (PyObject_GetBuffer(column, &given, PyBUF_SIMPLE) < 0)
        return NULL;
    if (given.len == 0 || given.len % 8 || (uintptr_t)given.buf % 8) {
        PyBuffer_Release(&given);
        PyErr_SetString(PyExc_ValueError, "words(column) takes words of 64 bits, and at least one");
        return NULL;
    }
    unsigned char *to = PyMem_Malloc((size_t)given.len);
    PyObject *found = NULL;
    if (to != NULL) {
        const char *kind = pack(given.buf, (size_t)given.len / 8, to, &size);
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)to, (Py_ssize_t)size);
        found = bytes == NULL ? NULL : Py_BuildValue("sN", kind, bytes);
        PyMem_Free(to);
    } else
        PyErr_NoMemory();
    PyBuffer_Release(&given);
    return found;
}
