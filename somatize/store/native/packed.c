/* Bytes as they are packed with msgpack: texts, floats, and the heads of maps and lists. */
#include "packed.h"

unsigned char *reserve(Packed *self, size_t more)
{
    if (self->used + more > self->room) {
        size_t room = 2 * self->room + more;
        unsigned char *bytes = PyMem_Realloc(self->bytes, room);
        if (bytes == NULL)
            return NULL;
        self->bytes = bytes;
        self->room = room;
    }
    return self->bytes + self->used;
}

int put_text(Packed *self, const char *text, size_t length)
{
    unsigned char *to;
    if (self->used + length > MOST_PACKED || (to = reserve(self, length + 5)) == NULL)
        return 0;
    size_t head = 1;
    if (length < 32)
        to[0] = (unsigned char)(0xA0 | length);
    else if (length < 256)
        to[0] = 0xD9, to[1] = (unsigned char)length, head = 2;
    else if (length < 65536)
        to[0] = 0xDA, to[1] = (unsigned char)(length >> 8), to[2] = (unsigned char)length, head = 3;
    else {
        to[0] = 0xDB;
        for (int i = 0; i < 4; i++)
            to[1 + i] = (unsigned char)(length >> 8 * (3 - i));
        head = 5;
    }
    memcpy(to + head, text, length);
    self->used += head + length;
    return 1;
}

/* A head of msgpack for `count` things: of a map (0x80, 0xDE) or a list (0x90, 0xDC); none has more than 65,535. */
int put_head(Packed *self, size_t count, unsigned char few, unsigned char many)
{
    unsigned char *to = reserve(self, 3);
    if (to == NULL || count > 65535)
        return 0;
    if (count < 16) {
        to[0] = (unsigned char)(few | count);
        self->used += 1;
    } else {
        to[0] = many, to[1] = (unsigned char)(count >> 8), to[2] = (unsigned char)count;
        self->used += 3;
    }
    return 1;
}

int put_str(Packed *self, PyObject *text)
{
    Py_ssize_t length;
    const char *utf8;
    if (!PyUnicode_CheckExact(text) || (utf8 = PyUnicode_AsUTF8AndSize(text, &length)) == NULL)
        return 0;
    return put_text(self, utf8, (size_t)length);
}

int put_double(Packed *self, double value)
{
    uint64_t word;
    unsigned char *to = reserve(self, 9);
    if (to == NULL)
        return 0;
    memcpy(&word, &value, 8);
    to[0] = 0xCB;
    for (int i = 0; i < 8; i++)
        to[1 + i] = (unsigned char)(word >> 8 * (7 - i));
    self->used += 9;
    return 1;
}

int is_text(PyObject *text, const char *wanted)
{
    return text != NULL && PyUnicode_CheckExact(text) && PyUnicode_CompareWithASCIIString(text, wanted) == 0;
}

int put_value(Packed *self, PyObject *value)
{
    char *text, digits[24];
    if (PyFloat_CheckExact(value)) {
        if ((text = PyOS_double_to_string(PyFloat_AsDouble(value), 'r', 0, Py_DTSF_ADD_DOT_0, NULL)) == NULL)
            return 0;
        int done = put_text(self, text, strlen(text));
        PyMem_Free(text);
        return done;
    }
    if (PyLong_CheckExact(value)) {
        int over;
        long long number = PyLong_AsLongLongAndOverflow(value, &over);
        return !over && put_text(self, digits, (size_t)PyOS_snprintf(digits, sizeof digits, "%lld", number));
    }
    return put_str(self, value);
}
