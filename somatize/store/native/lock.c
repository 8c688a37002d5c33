/* Lock: a reentrant lock like threading.RLock for `with`, which C can take without calling Python. */
#include "lock.h"

int lock_try(Lock *self)
{
    unsigned long me = PyThread_get_thread_ident();
    if (!self->depth || self->owner != me) {
        if (!PyThread_acquire_lock(self->lock, NOWAIT_LOCK))
            return 0;
        self->owner = me;
    }
    self->depth++;
    return 1;
}

void lock_leave(Lock *self)
{
    if (--self->depth == 0)
        PyThread_release_lock(self->lock);
}

static PyObject *lock_enter(Lock *self, PyObject *none)
{
    (void)none;
    while (!lock_try(self)) {
        PyLockStatus status;
        Py_BEGIN_ALLOW_THREADS
        status = PyThread_acquire_lock_timed(self->lock, -1, 1);
        Py_END_ALLOW_THREADS
        if (status == PY_LOCK_ACQUIRED) {
            self->owner = PyThread_get_thread_ident();
            self->depth = 1;
            break;
        }
        if (Py_MakePendingCalls() < 0) /* Ctrl-C while waiting */
            return NULL;
    }
    return Py_NewRef((PyObject *)self);
}

static PyObject *lock_exit(Lock *self, PyObject *const *exception, Py_ssize_t count)
{
    (void)exception, (void)count;
    if (!self->depth || self->owner != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError, "this thread does not have the lock");
        return NULL;
    }
    lock_leave(self);
    Py_RETURN_NONE;
}

static PyObject *lock_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    (void)named;
    if (!PyArg_ParseTuple(arguments, ":Lock"))
        return NULL;
    Lock *self = (Lock *)PyType_GenericNew(type, NULL, NULL);
    if (self != NULL && (self->lock = PyThread_allocate_lock()) == NULL) {
        PyErr_NoMemory();
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void lock_dealloc(Lock *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->lock != NULL) {
        if (self->depth)
            PyThread_release_lock(self->lock);
        PyThread_free_lock(self->lock);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef lock_methods[] = {
    {"__enter__", (PyCFunction)lock_enter, METH_NOARGS, "Wait until no other thread has it, and take it."},
    {"__exit__", (PyCFunction)(void (*)(void))lock_exit, METH_FASTCALL, "Give it back. Raises RuntimeError."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot lock_slots[] = {
    {Py_tp_doc, "Lock()\n\nA lock that its owner may take again."},
    {Py_tp_new, lock_new},
    {Py_tp_dealloc, lock_dealloc},
    {Py_tp_methods, lock_methods},
    {0, NULL},
};

PyType_Spec lock_spec = {
    .name = "somatize.store._speedups.Lock", .basicsize = sizeof(Lock), .flags = Py_TPFLAGS_DEFAULT,
    .slots = lock_slots,
};
