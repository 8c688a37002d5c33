/* rows(): the complete records at the beginning of a stretch of a journal, as columns of blocks. */
#include "rows.h"
#include <stdlib.h>

static PyObject *numbers(const Row *first, size_t count, uint64_t (*of)(const Row *))
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(8 * count));
    if (bytes == NULL)
        return NULL;
    char *to = PyBytes_AsString(bytes);
    for (size_t i = 0; i < count; i++) {
        uint64_t word = of(first + i);
        memcpy(to + 8 * i, &word, 8);
    }
    return bytes;
}

static uint64_t forward_of(const Row *row) { return row->forward; }
static uint64_t state_of(const Row *row) { return row->state; }
static uint64_t nodes_of(const Row *row) { return row->nodes; }
static uint64_t took_of(const Row *row) { return row->took; }
static uint64_t when_of(const Row *row) { return row->when; }
static uint64_t end_of(const Row *row) { return row->to; } /* valid once its facts are copied */

static PyObject *value_at(const Stretch *stretch, size_t said)
{
    if (said == 0)
        return Py_NewRef(Py_None);
    const unsigned char *at = stretch->data + said - 1;
    if (at[0] == 0xCB) {
        uint64_t word = 0;
        double value;
        for (int i = 0; i < 8; i++)
            word = word << 8 | at[1 + i];
        memcpy(&value, &word, 8);
        return PyFloat_FromDouble(value);
    }
    size_t head = at[0] == 0xD9 ? 2 : at[0] == 0xDA ? 3 : at[0] == 0xDB ? 5 : 1;
    return PyUnicode_DecodeUTF8((const char *)at + head,
                                (Py_ssize_t)(value_size(at, stretch->size - (said - 1)) - head), "strict");
}

/* The value of one field in each row of a block. */
static PyObject *column(const Stretch *stretch, size_t first, size_t count, size_t field)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    if (list == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        PyObject *value = value_at(stretch, stretch->said[(first + i) * stretch->fields + field]);
        if (value == NULL || PyList_SetItem(list, (Py_ssize_t)i, value) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *columns(const Stretch *stretch, size_t first, size_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)stretch->fields);
    for (size_t field = 0; tuple != NULL && field < stretch->fields; field++) {
        PyObject *list = column(stretch, first, count, field);
        if (list == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)field, list) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* The concatenated facts of the rows of a block. */
static PyObject *copied(Stretch *stretch, size_t first, size_t count)
{
    size_t whole = 0;
    Row *rows = stretch->rows + first;
    for (size_t i = 0; i < count; i++) {
        rows[i].to = whole;
        whole += rows[i].body;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)whole);
    if (bytes == NULL)
        return NULL;
    char *to = PyBytes_AsString(bytes);
    for (size_t i = 0; i < stretch->pieces_count; i++) {
        Piece piece = stretch->pieces[i];
        if (piece.row < first || piece.row >= first + count)
            continue;
        memcpy(to + stretch->rows[piece.row].to, stretch->data + piece.at, piece.size);
        stretch->rows[piece.row].to += piece.size;
    }
    return bytes;
}

static PyObject *checksums(const Row *rows, size_t count, PyObject *body)
{
    const unsigned char *facts = (const unsigned char *)PyBytes_AsString(body);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(8 * count));
    if (bytes == NULL)
        return NULL;
    char *to = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < count; i++) {
        uint64_t crc = crc32_of(0, facts + rows[i].to - rows[i].body, rows[i].body);
        memcpy(to + 8 * i, &crc, 8);
    }
    Py_END_ALLOW_THREADS
    return bytes;
}

/* ((forward, state, nodes, took, when, end, crc), columns, body) of a block. */
static PyObject *block(Stretch *stretch, size_t first, size_t count)
{
    Row *of = stretch->rows + first;
    PyObject *body = copied(stretch, first, count);
    if (body == NULL)
        return NULL;
    PyObject *crcs = checksums(of, count, body), *said = columns(stretch, first, count);
    if (crcs == NULL || said == NULL) {
        Py_XDECREF(crcs);
        Py_XDECREF(said);
        Py_DECREF(body);
        return NULL;
    }
    return Py_BuildValue("(NNNNNNN)NN", numbers(of, count, forward_of), numbers(of, count, state_of),
                         numbers(of, count, nodes_of), numbers(of, count, took_of), numbers(of, count, when_of),
                         numbers(of, count, end_of), crcs, said, body);
}

static PyObject *blocks(Stretch *stretch, size_t most_rows, size_t most_bytes)
{
    PyObject *list = PyList_New(0);
    size_t first = 0;
    while (list != NULL && first < stretch->rows_count) {
        size_t count = 1, bytes = stretch->rows[first].body;
        while (first + count < stretch->rows_count && count < most_rows
               && bytes + stretch->rows[first + count].body <= most_bytes)
            bytes += stretch->rows[first + count++].body;
        PyObject *one = block(stretch, first, count);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
        first += count;
    }
    return list;
}

static PyObject *odd(const Stretch *stretch)
{
    PyObject *list = PyList_New((Py_ssize_t)stretch->odd_count);
    for (size_t i = 0; list != NULL && i < stretch->odd_count; i++) {
        PyObject *at = PyLong_FromSize_t(stretch->odd[i]);
        if (at == NULL || PyList_SetItem(list, (Py_ssize_t)i, at) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 4 || !PyBytes_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "rows(buffer, fields, most_rows, most_bytes) takes bytes and three numbers");
        return NULL;
    }
    Stretch stretch = {.data = (const unsigned char *)PyBytes_AsString(arguments[0]),
                       .size = (size_t)PyBytes_Size(arguments[0]), .fields = PyLong_AsSize_t(arguments[1])};
    size_t most_rows = PyLong_AsSize_t(arguments[2]), most_bytes = PyLong_AsSize_t(arguments[3]);
    if (PyErr_Occurred())
        return NULL;
    if (stretch.fields > MOST_FIELDS)
        return Py_BuildValue("[][]i", 0);
    int enough;
    PyObject *found = NULL;
    Py_BEGIN_ALLOW_THREADS
    enough = take_all(&stretch);
    Py_END_ALLOW_THREADS
    if (enough) {
        PyObject *whole = blocks(&stretch, most_rows, most_bytes), *others = whole == NULL ? NULL : odd(&stretch);
        found = others == NULL ? NULL : Py_BuildValue("NNn", whole, others, (Py_ssize_t)stretch.end);
        if (others == NULL)
            Py_XDECREF(whole);
    } else
        PyErr_NoMemory();
    free(stretch.rows);
    free(stretch.pieces);
    free(stretch.odd);
    free(stretch.said);
    return found;
}
