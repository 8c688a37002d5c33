/* Parsing of a stretch of a journal into rows; blocks.c makes blocks of them.
 *
 * An entry that is neither a record nor a fact said after a record of this stretch is odd: its position is returned,
 * and Python reads it. After an odd entry, all entries of its forward are odd, so that its facts stay in order. The
 * stretch is parsed without the GIL.
 */
#include "rows.h"
#include <stdlib.h>

#define MARK "\xA2id" /* record_format.MARK */
#define MARK_SIZE 3

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

size_t value_size(const unsigned char *at, size_t left)
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

/* Parse a summary: 1 if it has a value or nil for each field; with `said`, note the positions of the values. */
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

/* The row of a forward, or NULL; rows are sorted by number. */
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

/* Begin a row with a record: 1; 0 if the entry is odd, -1 if there is no memory. */
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

/* Add a late fact to the row of its forward; returns as `take_record`. */
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

int take_all(Stretch *stretch)
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
