/* rows: the complete records at the beginning of a stretch of a journal, as columns of blocks.
 *
 * What is not a record, nor a fact said after a record of this stretch, is odd: Python is told where it stands, and
 * takes it in. From the first odd entry about a forward on, all about that forward is odd, so that its facts stay in order.
 * The stretch is gone through without Python's lock.
 */
#include "entries.h"
#include <stdlib.h>

#define MARK "\xA2id" /* packing.MARK */
#define MARK_SIZE 3
#define MOST_FIELDS 1024 /* each row has a word for each: of more, none is taken in */

typedef struct {
    uint64_t forward, took, when;
    uint32_t nodes;
    uint8_t state, left; /* `left`: what follows about it is odd */
    size_t body;         /* bytes of its facts */
    size_t to;           /* where its next facts go, in their block */
} Row;

typedef struct {
    size_t row, at, size;
} Piece;

typedef struct {
    const unsigned char *data;
    size_t size, end, fields;
    Row *rows;
    size_t rows_count, rows_room;
    uint64_t next; /* above all numbers named so far: the lowest that a record may have */
    Piece *pieces;
    size_t pieces_count, pieces_room;
    size_t *odd;
    size_t odd_count, odd_room;
    size_t *said; /* per row and field, 1 + where the msgpack of what was said stands; 0 for nothing */
    size_t said_room;
} Stretch;

static void *grown(void *array, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return array;
    size_t more = *room ? 2 * *room : 256;
    void *moved = realloc(array, more * size);
    if (moved != NULL)
        *room = more;
    return moved;
}

#define ADD(stretch, what) \
    (((stretch)->what##_count < (stretch)->what##_room) \
     || ((moved = grown((stretch)->what, &(stretch)->what##_room, (stretch)->what##_count, sizeof *(stretch)->what)) \
         != NULL && ((stretch)->what = moved, 1)))

/* How many bytes the text, the float or the nil takes that stands there; 0 if it is none of them. */
static size_t value_size(const unsigned char *at, size_t left)
{
    size_t size = 0;
    if (left == 0)
        return 0;
    if ((at[0] & 0xE0) == 0xA0)
        size = 1 + (at[0] & 0x1Fu);
    else if (at[0] == 0xC0)
        size = 1;
    else if (at[0] == 0xCB)
        size = 9;
    else if (at[0] == 0xD9 && left > 1)
        size = 2 + (size_t)at[1];
    else if (at[0] == 0xDA && left > 2)
        size = 3 + ((size_t)at[1] << 8 | at[2]);
    else if (at[0] == 0xDB && left > 4)
        size = 5 + ((size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4]);
    return size <= left ? size : 0;
}

/* Look at a summary: 1 if it holds a value or nil for each field; with `said`, note where what is said stands. */
static int take_summary(const Stretch *stretch, size_t at, size_t size, size_t *said)
{
    size_t end = at + size, count;
    if (size == 0)
        return 1;
    if ((stretch->data[at] & 0xF0) == 0x90)
        count = stretch->data[at] & 0x0F, at += 1;
    else if (stretch->data[at] == 0xDC && size > 2)
        count = (size_t)stretch->data[at + 1] << 8 | stretch->data[at + 2], at += 3;
    else
        return 0;
    if (count != stretch->fields)
        return 0;
    for (size_t field = 0; field < count; field++) {
        size_t length = value_size(stretch->data + at, end - at);
        if (length == 0)
            return 0;
        if (said != NULL && stretch->data[at] != 0xC0)
            said[field] = at + 1;
        at += length;
    }
    return at == end;
}

/* The row of a forward, or NULL; they stand by number. */
static Row *find(const Stretch *stretch, uint64_t forward)
{
    size_t low = 0, high = stretch->rows_count;
    if (high && stretch->rows[high - 1].forward == forward)
        return stretch->rows + high - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (stretch->rows[middle].forward < forward)
            low = middle + 1;
        else
            high = middle;
    }
    return low < stretch->rows_count && stretch->rows[low].forward == forward ? stretch->rows + low : NULL;
}

static int is_marked(const unsigned char *body, size_t size)
{
    const unsigned char *at = body, *end = body + size;
    while ((size_t)(end - at) >= MARK_SIZE && (at = memchr(at, MARK[0], (size_t)(end - at) - MARK_SIZE + 1)) != NULL) {
        if (memcmp(at, MARK, MARK_SIZE) == 0)
            return 1;
        at++;
    }
    return 0;
}

/* A record begins a row. 1 if it did, 0 if the entry is odd, -1 if there is no memory. */
static int take_record(Stretch *stretch, size_t at, size_t middle, size_t after)
{
    void *moved;
    const unsigned char *head = stretch->data + at;
    uint64_t forward = get64(head + FORWARD_AT), took = get64(head + TOOK_AT), when = get64(head + WHEN_AT);
    if (forward > INT64_MAX || forward < stretch->next || when > INT64_MAX || (took > INT64_MAX && took != NO_TIME)
        || !take_summary(stretch, at + ENTRY_HEAD, middle - at - ENTRY_HEAD, NULL))
        return 0;
    if (!ADD(stretch, rows))
        return -1;
    if (stretch->fields) {
        size_t needed = (stretch->rows_count + 1) * stretch->fields;
        if (needed > stretch->said_room) {
            size_t room = 2 * needed + 256;
            if ((moved = realloc(stretch->said, room * sizeof(size_t))) == NULL)
                return -1;
            stretch->said = moved;
            stretch->said_room = room;
        }
        size_t *said = stretch->said + stretch->rows_count * stretch->fields;
        memset(said, 0, stretch->fields * sizeof(size_t));
        take_summary(stretch, at + ENTRY_HEAD, middle - at - ENTRY_HEAD, said);
    }
    stretch->next = forward + 1;
    stretch->rows[stretch->rows_count++] = (Row){.forward = forward, .took = took,
        .when = when, .nodes = get32(head + NODES_AT), .state = head[STATE_AT], .body = after - middle};
    return 1;
}

/* A fact said after a forward goes to its row, as `take_record`. */
static int take_late(Stretch *stretch, size_t at, size_t middle, size_t after)
{
    Row *row = find(stretch, get64(stretch->data + at + FORWARD_AT));
    if (row == NULL || row->left)
        return 0;
    if (is_marked(stretch->data + middle, after - middle)
        || !take_summary(stretch, at + ENTRY_HEAD, middle - at - ENTRY_HEAD, NULL)) {
        row->left = 1;
        return 0;
    }
    if (stretch->fields)
        take_summary(stretch, at + ENTRY_HEAD, middle - at - ENTRY_HEAD,
                     stretch->said + (size_t)(row - stretch->rows) * stretch->fields);
    row->body += after - middle;
    return 1;
}

static int take_odd(Stretch *stretch, size_t at)
{
    void *moved;
    uint64_t forward = get64(stretch->data + at + FORWARD_AT);
    Row *row = find(stretch, forward);
    if (row != NULL)
        row->left = 1;
    if (forward != OWN && forward >= stretch->next)
        stretch->next = forward + 1;
    if (!ADD(stretch, odd))
        return -1;
    stretch->odd[stretch->odd_count++] = at;
    return 1;
}

static int take_piece(Stretch *stretch, uint64_t forward, size_t at, size_t size)
{
    void *moved;
    if (!ADD(stretch, pieces))
        return -1;
    stretch->pieces[stretch->pieces_count++] = (Piece){(size_t)(find(stretch, forward) - stretch->rows), at, size};
    return 1;
}

/* Go through the entries up to the first that is not whole. 0 if there is no memory. */
static int take_all(Stretch *stretch)
{
    size_t at = 0;
    while (stretch->size - at >= ENTRY_HEAD) {
        const unsigned char *head = stretch->data + at;
        size_t size = get32(head + SIZE_AT), summed = get32(head + SUMMED_AT), after = at + UNSIZED + size;
        if (size < ENTRY_HEAD - UNSIZED || size > stretch->size - at - UNSIZED || head[KIND_AT] < RECORD
            || head[KIND_AT] > ABOUT || summed > size - (ENTRY_HEAD - UNSIZED)
            || crc32_of(0, head + UNSIZED, size) != get32(head + CRC_AT))
            break;
        size_t middle = at + ENTRY_HEAD + summed;
        int taken = head[KIND_AT] == RECORD ? take_record(stretch, at, middle, after)
                  : head[KIND_AT] == LATE ? take_late(stretch, at, middle, after) : 0;
        if (taken > 0)
            taken = take_piece(stretch, get64(head + FORWARD_AT), middle, after - middle);
        else if (taken == 0)
            taken = take_odd(stretch, at);
        if (taken < 0)
            return 0;
        at = after;
    }
    stretch->end = at;
    return 1;
}

/* -- what Python is given */

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
static uint64_t end_of(const Row *row) { return row->to; } /* once its facts are copied */

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

/* What each row of a block said of one field. */
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

/* The facts of each row of a block, one row after the other. */
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
