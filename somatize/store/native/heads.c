/* Columns of the heads of journal entries, for readers that need few entries; see somatize/store/journal_reader.py. */
#include "entries.h"

enum { BROKE = 2, INTERRUPTED = 3, LOST = 4 };

typedef struct {
    PyObject *bytes[6];
    char *to[6];
} Columns; /* places, kinds, states, forwards, whens, took */

static const size_t WIDTH[6] = {8, 1, 1, 8, 8, 8};

/* The number of entries; -1 if they do not lead to the end. */
static Py_ssize_t entries(const unsigned char *data, size_t size)
{
    Py_ssize_t count = 0;
    size_t at = 0;
    while (size - at >= ENTRY_HEAD) {
        size_t rest = get32(data + at + SIZE_AT);
        if (data[at + KIND_AT] < RECORD || data[at + KIND_AT] > ABOUT || rest < ENTRY_HEAD - UNSIZED
            || rest > size - at - UNSIZED)
            return -1;
        at += UNSIZED + rest;
        count++;
    }
    return at == size ? count : -1;
}

static void fill(Columns *columns, const unsigned char *data, size_t size, uint64_t base)
{
    size_t at = 0;
    for (size_t i = 0; at < size; i++) {
        uint64_t words[4] = {base + at, get64(data + at + FORWARD_AT), get64(data + at + WHEN_AT),
                             get64(data + at + TOOK_AT)};
        memcpy(columns->to[0] + 8 * i, words, 8);
        columns->to[1][i] = (char)data[at + KIND_AT];
        columns->to[2][i] = (char)data[at + STATE_AT];
        for (int which = 1; which < 4; which++)
            memcpy(columns->to[which + 2] + 8 * i, words + which, 8);
        at += UNSIZED + get32(data + at + SIZE_AT);
    }
}

PyObject *heads(PyObject *module, PyObject *arguments)
{
    PyObject *buffer, *found = NULL;
    unsigned long long base;
    Columns columns = {0};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "SK:heads", &buffer, &base))
        return NULL;
    const unsigned char *data = (const unsigned char *)PyBytes_AsString(buffer);
    size_t size = (size_t)PyBytes_Size(buffer);
    Py_ssize_t count = entries(data, size);
    if (count < 0)
        Py_RETURN_NONE;
    int made = 1;
    for (int i = 0; i < 6 && made; i++) {
        columns.bytes[i] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)WIDTH[i] * count);
        made = columns.bytes[i] != NULL && (columns.to[i] = PyBytes_AsString(columns.bytes[i])) != NULL;
    }
    if (made) {
        Py_BEGIN_ALLOW_THREADS
        fill(&columns, data, size, base);
        Py_END_ALLOW_THREADS
        found = PyTuple_Pack(6, columns.bytes[0], columns.bytes[1], columns.bytes[2], columns.bytes[3],
                             columns.bytes[4], columns.bytes[5]);
    }
    for (int i = 0; i < 6; i++)
        Py_XDECREF(columns.bytes[i]);
    return found;
}

/* Get the words of a Python array and their number; -1 and an error if it is no array of words. */
static Py_ssize_t words_of(PyObject *column, Py_buffer *view)
{
    if (PyObject_GetBuffer(column, view, PyBUF_SIMPLE) < 0)
        return -1;
    if (view->len == 0 || (view->len % 8 == 0 && (uintptr_t)view->buf % 8 == 0)) /* an empty array may be unaligned */
        return view->len / 8;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "a column has words of 64 bits");
    return -1;
}

PyObject *within(PyObject *module, PyObject *arguments)
{
    PyObject *column;
    Py_buffer view;
    unsigned long long first, last;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OKK:within", &column, &first, &last))
        return NULL;
    Py_ssize_t count = words_of(column, &view), from = 0, to;
    if (count < 0)
        return NULL;
    const uint64_t *forwards = view.buf;
    for (to = count; to > 0 && (forwards[to - 1] < first || forwards[to - 1] > last); to--)
        ;
    while (from < to && (forwards[from] < first || forwards[from] > last))
        from++;
    PyBuffer_Release(&view);
    return Py_BuildValue("nn", from, to);
}

PyObject *highest(PyObject *module, PyObject *column)
{
    Py_buffer view;
    (void)module;
    Py_ssize_t count = words_of(column, &view);
    if (count < 0)
        return NULL;
    const uint64_t *forwards = view.buf;
    uint64_t most = 0;
    int any = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (forwards[i] != OWN && (!any || forwards[i] > most)) {
            most = forwards[i];
            any = 1;
        }
    PyBuffer_Release(&view);
    return any ? PyLong_FromUnsignedLongLong(most) : PyLong_FromLong(-1);
}

PyObject *totals(PyObject *module, PyObject *arguments)
{
    PyObject *kind_column, *state_column, *when_column, *took_column;
    Py_buffer when_view, took_view;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "SSOO:totals", &kind_column, &state_column, &when_column, &took_column))
        return NULL;
    Py_ssize_t count = words_of(when_column, &when_view);
    if (count < 0)
        return NULL;
    Py_ssize_t as_many = words_of(took_column, &took_view);
    PyObject *found = NULL;
    if (as_many == count && PyBytes_Size(kind_column) == count && PyBytes_Size(state_column) == count) {
        const char *kinds = PyBytes_AsString(kind_column), *states = PyBytes_AsString(state_column);
        const uint64_t *whens = when_view.buf, *took = took_view.buf;
        unsigned long long rows = 0, ended[LOST + 1] = {0}, sum = 0, first = 0, last = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            if (kinds[i] != RECORD)
                continue;
            first = !rows++ || whens[i] < first ? whens[i] : first;
            last = whens[i] > last ? whens[i] : last;
            sum += took[i] != NO_TIME ? took[i] : 0;
            if (states[i] >= BROKE && states[i] <= LOST)
                ended[(int)states[i]]++;
        }
        found = Py_BuildValue("KKKKKKK", rows, ended[BROKE], ended[INTERRUPTED], ended[LOST], sum, first, last);
    } else if (as_many >= 0)
        PyErr_SetString(PyExc_ValueError, "columns of one table are as long as each other");
    if (as_many >= 0)
        PyBuffer_Release(&took_view);
    PyBuffer_Release(&when_view);
    return found;
}
