/* Pen: appends the records of ordinary forwards, and facts said after them, to the journal of one writer.
 *
 * A call is atomic for signal handlers: it does everything, or changes nothing and returns False; also if another
 * thread has the lock of the run's gate, which guards all of this. Numbers are taken as in somatize/store/locks.py, for
 * the only writing process of a run.
 */
#define _POSIX_C_SOURCE 200809L
#include "facts.h"
#include "lock.h"
#include <structmember.h>
#include <time.h>
#include <unistd.h>

enum { SEVERAL = 0, BUSY = 1 };
enum { STATE_OK = 1 };

typedef struct {
    PyObject_HEAD
    int fd;
    Py_ssize_t size, most;
    PyObject *waiting;
    Lock *lock;
    Py_buffer count, flags;
    int open, appending; /* `appending`: a call has let other threads in, and needs the buffers */
    Sheet sheet;
} Pen;

static PyObject *NAME_TOOK, *NAME_NUMBER, *NAME_OVER, *NAME_PARTED;
PyObject *LOCK_TYPE;

/* -- entries */

static void fill_head(Pen *self, int kind, int state, size_t summed, size_t nodes, uint64_t took)
{
    struct timespec now;
    unsigned char *head = self->sheet.entry.bytes;
    clock_gettime(CLOCK_REALTIME, &now);
    put32(head + SIZE_AT, (uint32_t)(self->sheet.entry.used - UNSIZED));
    head[KIND_AT] = (unsigned char)kind;
    head[STATE_AT] = (unsigned char)state;
    head[STATE_AT + 1] = head[STATE_AT + 2] = 0;
    put32(head + SUMMED_AT, (uint32_t)summed);
    put32(head + NODES_AT, (uint32_t)nodes);
    put64(head + WHEN_AT, (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u);
    put64(head + TOOK_AT, took);
}

/* Append the entry to the journal, with its checksum; 0, and it is undone, if the disk does not take all of it. */
static int append(Pen *self)
{
    ssize_t done;
    Packed *entry = &self->sheet.entry;
    put32(entry->bytes + CRC_AT, crc32_of(0, entry->bytes + UNSIZED, entry->used - UNSIZED));
    Py_BEGIN_ALLOW_THREADS
    done = write(self->fd, entry->bytes, entry->used);
    Py_END_ALLOW_THREADS
    if (done == (ssize_t)entry->used) {
        self->size += done;
        return 1;
    }
    if (done > 0 && ftruncate(self->fd, self->size) != 0)
        self->size = PY_SSIZE_T_MAX; /* the torn entry ends this journal: the next entry begins another file */
    return 0;
}

/* Take the lock and begin an entry; 0, without the lock, if none can be written now. */
static int begin(Pen *self)
{
    if (!self->open || !lock_try(self->lock))
        return 0;
    self->sheet.entry.used = 0;
    for (Py_ssize_t i = 0; i < self->sheet.count; i++)
        self->sheet.wanted[i].said = NULL;
    if (self->open && self->fd >= 0 && self->size <= self->most && PyObject_Size(self->waiting) == 0
        && reserve(&self->sheet.entry, ENTRY_HEAD) != NULL) {
        self->sheet.entry.used = ENTRY_HEAD;
        return 1;
    }
    lock_leave(self->lock);
    return 0;
}

/* Pack a finished forward; 0 if it has not finished or is not ordinary. */
static int put_forward(Pen *self, PyObject *facts)
{
    PyObject *kind = NULL, *last = NULL;
    Py_ssize_t told = PyList_Size(facts), summed;
    size_t nodes = 0;
    uint64_t took;
    for (Py_ssize_t i = 0; i < told; i++) {
        last = PyList_GetItem(facts, i);
        if ((kind = put_fact(&self->sheet, last)) == NULL)
            return 0;
        nodes += is_text(kind, "ran") || is_text(kind, "recalled") || is_text(kind, "failed");
    }
    if (kind == NULL || !is_text(kind, "finished") || !microseconds(PyDict_GetItemWithError(last, NAME_TOOK), &took)
        || (summed = put_summary(&self->sheet)) < 0 || self->sheet.entry.used > MOST_PACKED)
        return 0;
    fill_head(self, RECORD, STATE_OK, (size_t)summed, nodes, took);
    return 1;
}

/* Release what it refers to: `waiting` may refer back to the pen, a cycle that the garbage collector does not see. */
static void let_go(Pen *self)
{
    PyBuffer_Release(&self->count);
    PyBuffer_Release(&self->flags);
    Py_CLEAR(self->waiting);
}

/* Take a number for the entry and append it; 0, and the number is given back, if that fails. */
static int append_next(Pen *self, uint64_t *number)
{
    unsigned char *flags = self->flags.buf;
    uint64_t *next = self->count.buf;
    int written = 0;
    self->appending = 1;
    __atomic_store_n(&flags[BUSY], 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&flags[SEVERAL], __ATOMIC_SEQ_CST)) {
        *number = *next;
        *next = *number + 1;
        put64(self->sheet.entry.bytes + FORWARD_AT, *number);
        if (!(written = append(self)))
            *next = *number;
    }
    __atomic_store_n(&flags[BUSY], 0, __ATOMIC_SEQ_CST);
    self->appending = 0;
    if (!self->open)
        let_go(self);
    return written;
}

/* True, or NULL, if it is done; otherwise False without an error: Python then does it, and raises what is wrong. */
static PyObject *answer(int done, int known)
{
    if (done)
        return known ? Py_NewRef(Py_True) : NULL;
    PyErr_Clear();
    Py_RETURN_FALSE;
}

PyDoc_STRVAR(record_doc,
"record(pending, facts, open) -> bool\n\n"
"Append the record of a finished forward under the next number, set `number` and `over` of `pending`, remove it from\n"
"the set `open` and clear `facts`.");

static PyObject *pen_record(Pen *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !PyList_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "record(pending, facts, open) takes a Pending, a list and a set");
        return NULL;
    }
    PyObject *pending = arguments[0], *facts = arguments[1];
    Py_ssize_t told = PyList_Size(facts);
    uint64_t number;
    if (!begin(self))
        return answer(0, 0);
    PyObject *parted = PyObject_GetAttr(pending, NAME_PARTED);
    const unsigned char *flags = self->flags.buf;
    int known = 0, done = parted == Py_False && !flags[SEVERAL] && put_forward(self, facts) && append_next(self, &number);
    Py_XDECREF(parted);
    if (done) {
        PyObject *named = PyLong_FromUnsignedLongLong(number);
        known = named != NULL && PyObject_SetAttr(pending, NAME_NUMBER, named) == 0
                && PyObject_SetAttr(pending, NAME_OVER, Py_True) == 0 && PySet_Discard(arguments[2], pending) >= 0
                && PyList_SetSlice(facts, 0, told, NULL) == 0;
        Py_XDECREF(named);
    }
    lock_leave(self->lock);
    return answer(done, known);
}

PyDoc_STRVAR(late_doc,
"late(number, given) -> bool\n\n"
"Append a fact, made of `given`, said after the forward of that number.");

static PyObject *pen_late(Pen *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "late(number, given) takes a number and a dict");
        return NULL;
    }
    if (!PyLong_CheckExact(arguments[0]) || !begin(self))
        return answer(0, 0);
    int done = 0;
    Py_ssize_t summed;
    unsigned long long number = PyLong_AsUnsignedLongLong(arguments[0]);
    if (!PyErr_Occurred() && put_said(&self->sheet, arguments[1]) != NULL && (summed = put_summary(&self->sheet)) >= 0
        && self->sheet.entry.used <= MOST_PACKED) {
        fill_head(self, LATE, 0, (size_t)summed, 0, NO_TIME);
        put64(self->sheet.entry.bytes + FORWARD_AT, number);
        done = append(self);
    }
    lock_leave(self->lock);
    return answer(done, 1);
}

/* -- the type */

static PyObject *pen_close(Pen *self, PyObject *none)
{
    (void)none;
    if (self->open) {
        self->open = 0;
        if (!self->appending)
            let_go(self);
    }
    Py_RETURN_NONE;
}

static int pen_init(Pen *self, PyObject *arguments, PyObject *named)
{
    PyObject *count, *flags, *fields, *kinds, *waiting, *lock;
    (void)named;
    if (self->sheet.fields != NULL) {
        PyErr_SetString(PyExc_TypeError, "a Pen is made once");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "OOO!O!nOO!:Pen", &count, &flags, &PyTuple_Type, &fields, &PyFrozenSet_Type, &kinds,
                          &self->most, &waiting, LOCK_TYPE, &lock))
        return -1;
    self->fd = -1;
    self->sheet.fields = Py_NewRef(fields);
    self->sheet.kinds = Py_NewRef(kinds);
    self->waiting = Py_NewRef(waiting);
    self->lock = (Lock *)Py_NewRef(lock);
    if (!take_fields(&self->sheet, fields) || PyObject_GetBuffer(count, &self->count, PyBUF_WRITABLE) < 0)
        return -1;
    if (PyObject_GetBuffer(flags, &self->flags, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&self->count);
        return -1;
    }
    if (self->count.len != 8 || (uintptr_t)self->count.buf % 8 || self->flags.len != 2) {
        PyBuffer_Release(&self->count);
        PyBuffer_Release(&self->flags);
        PyErr_SetString(PyExc_ValueError, "a Pen needs the word that numbers are counted in, and two bytes of flags");
        return -1;
    }
    self->open = 1;
    return 0;
}

static void pen_dealloc(Pen *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF(pen_close(self, NULL));
    Py_XDECREF(self->waiting);
    Py_XDECREF((PyObject *)self->lock);
    sheet_free(&self->sheet);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef pen_methods[] = {
    {"record", (PyCFunction)(void (*)(void))pen_record, METH_FASTCALL, record_doc},
    {"late", (PyCFunction)(void (*)(void))pen_late, METH_FASTCALL, late_doc},
    {"close", (PyCFunction)pen_close, METH_NOARGS, "Release the shared page; nothing is written any more."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef pen_members[] = {
    {"fd", T_INT, offsetof(Pen, fd), 0, "The journal it appends to; -1 for none."},
    {"size", T_PYSSIZET, offsetof(Pen, size), 0, "The bytes that the journal has."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot pen_slots[] = {
    {Py_tp_doc, "Pen(count, flags, fields, kinds, most, waiting, lock)\n\n"
                "Appends ordinary entries to a journal of at most `most` bytes, unless some wait to be appended."},
    {Py_tp_init, pen_init},
    {Py_tp_dealloc, pen_dealloc},
    {Py_tp_methods, pen_methods},
    {Py_tp_members, pen_members},
    {0, NULL},
};

PyType_Spec pen_spec = {
    .name = "somatize.store._speedups.Pen", .basicsize = sizeof(Pen), .flags = Py_TPFLAGS_DEFAULT,
    .slots = pen_slots,
};

/* Called once, before any Pen is made; 0 if there is no memory. */
int pen_begin(void)
{
    return facts_begin()
           && (NAME_TOOK = PyUnicode_InternFromString("took_us")) != NULL
           && (NAME_NUMBER = PyUnicode_InternFromString("number")) != NULL
           && (NAME_PARTED = PyUnicode_InternFromString("parted")) != NULL
           && (NAME_OVER = PyUnicode_InternFromString("over")) != NULL;
}
