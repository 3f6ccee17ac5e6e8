/* python_calls.c: see python_calls.h. With gather.c and arrow_calls.c the only file that knows Python; limited API of 3.11. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/crc32c.h"
#include "python/python_calls.h"

#include "base/errors.h"
#include "python/arrow_calls.h"
#include "wire/arrow_column.h"
#include "wire/frame.h"
#include "wire/message.h"
#include "wire/packer.h"

#include <stdbool.h>
#include <stddef.h>

#define GIL_BYTES_MAX (64 << 10) /* More than this is copied with the GIL free: about 10 microseconds. */

/* Work under the turn or the mutex: at once, or else without the GIL from waiting to the end. */
#define WITHOUT_WAITING(is_taken, take, work, give)  \
    do {                                             \
        if (is_taken) {                              \
            work;                                    \
            give;                                    \
        } else {                                     \
            Py_BEGIN_ALLOW_THREADS                   \
            take;                                    \
            work;                                    \
            give;                                    \
            Py_END_ALLOW_THREADS                     \
        }                                            \
    } while (0)

#define IN_TURN(packer, is_short, work)                                                                    \
    WITHOUT_WAITING((is_short) && ebk_packer_try_turn(packer), ebk_packer_take_turn(packer), work,         \
                    ebk_packer_end_turn(packer))

#define LOCKED(packer, work)                                                                               \
    WITHOUT_WAITING(ebk_packer_try_lock(packer), ebk_packer_lock(packer), work, ebk_packer_unlock(packer))

/* ---- the body of a frame: a buffer that releases it ------------------------------ */

struct body {
    PyObject_HEAD
    uint8_t *data;
    Py_ssize_t size;
};

static PyTypeObject *body_type;

static int body_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    struct body *body = (struct body *)self;
    return PyBuffer_FillInfo(view, self, body->data, body->size, 1, flags);
}

static void body_dealloc(PyObject *self)
{
    struct body *body = (struct body *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (body->data != NULL) {
        struct ebk_packer *packer = ebk_packer_of(body->data);
        LOCKED(packer, ebk_packer_release_locked(packer, body->data));
        ebk_packer_unref(packer);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot body_slots[] = {
    {Py_tp_dealloc, body_dealloc},
    {Py_bf_getbuffer, body_get_buffer},
    {0, NULL},
};

static PyType_Spec body_spec = {
    .name = "embedbk._native.FrameBody",
    .basicsize = sizeof(struct body),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = body_slots,
};

/* A memoryview of the frame; on failure the frame is released. */
static PyObject *view_of(const struct ebk_packed *frame)
{
    struct body *body = PyObject_New(struct body, body_type);
    if (body == NULL) {
        ebk_packer_release(frame->body);
        return NULL;
    }
    body->data = frame->body;
    body->size = frame->size;
    PyObject *view = PyMemoryView_FromObject((PyObject *)body);
    Py_DECREF(body);
    return view;
}

/* Only a whole body: a note stands in front of that, and of nothing else. */
static PyObject *frame_address(PyObject *module, PyObject *view)
{
    (void)module;
    Py_buffer bytes;
    if (!PyMemoryView_Check(view)) return PyLong_FromLong(0);
    PyObject *owner = PyObject_GetAttrString(view, "obj");
    if (owner == NULL) return NULL;
    const void *found = NULL;
    if (Py_TYPE(owner) == body_type && PyObject_GetBuffer(view, &bytes, PyBUF_SIMPLE) == 0) {
        const struct body *body = (const struct body *)owner;
        if (bytes.buf == body->data && bytes.len == body->size) found = body->data;
        PyBuffer_Release(&bytes);
    }
    Py_DECREF(owner);
    PyErr_Clear();
    return PyLong_FromVoidPtr((void *)found);
}

/* frame_view(address, size): of a frame that is out; one more release of it is owed, by the last reference to its bytes. */
static PyObject *frame_view(PyObject *module, PyObject *arguments)
{
    (void)module;
    unsigned long long address;
    unsigned int size;
    if (!PyArg_ParseTuple(arguments, "KI", &address, &size)) return NULL;
    const struct ebk_packed frame = {.body = (uint8_t *)(uintptr_t)address, .size = size};
    ebk_packer_retain(frame.body);
    return view_of(&frame);
}

/* ---- the packer as an object ------------------------------------------------------- */

struct packing {
    PyObject_HEAD
    struct ebk_packer *packer; /* NULL until _open */
};

static PyTypeObject *packing_type;
static PyObject *refusing; /* Raises for a payload that no packer takes. */

static struct ebk_packer *packer_of(PyObject *self)
{
    struct ebk_packer *packer = ((struct packing *)self)->packer;
    EBK_ASSERT(packer != NULL);
    return packer;
}

static PyObject *packing_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    (void)arguments;
    (void)named;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0); /* Zeroed. */
}

static void packing_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    struct ebk_packer *packer = ((struct packing *)self)->packer;
    if (packer != NULL) ebk_packer_unref(packer);
    release(self);
    Py_DECREF(type);
}

/* _open(ledger_id, next_entry, length, block_bytes, bytes_max) */
static PyObject *packing_open(PyObject *self, PyObject *arguments)
{
    unsigned long long ledger_id, length, bytes_max;
    long long next_entry;
    unsigned int block_bytes;
    if (!PyArg_ParseTuple(arguments, "KLKIK", &ledger_id, &next_entry, &length, &block_bytes, &bytes_max)) return NULL;
    EBK_ASSERT(((struct packing *)self)->packer == NULL);
    struct ebk_packer *packer = ebk_packer_open(ledger_id, next_entry, length, block_bytes, bytes_max);
    if (packer == NULL) return PyErr_NoMemory();
    ((struct packing *)self)->packer = packer;
    Py_RETURN_NONE;
}

/* Numbers of the packer's state, by their place in it. */
struct number {
    size_t at;
    size_t size;
};
#define NUMBER(field) (&(struct number){offsetof(struct ebk_packer_state, field), \
                                        sizeof((struct ebk_packer_state *)0)->field})

static unsigned long long number_of(PyObject *self, const struct number *number)
{
    const char *state = (const char *)ebk_packer_state(packer_of(self));
    if (number->size == sizeof(uint32_t)) return __atomic_load_n((const uint32_t *)(const void *)(state + number->at), __ATOMIC_RELAXED);
    return __atomic_load_n((const uint64_t *)(const void *)(state + number->at), __ATOMIC_RELAXED);
}

static PyObject *get_number(PyObject *self, void *number)
{
    return PyLong_FromLongLong((long long)number_of(self, number));
}

static PyObject *get_flag(PyObject *self, void *number)
{
    return PyBool_FromLong(number_of(self, number) != 0);
}

static PyObject *get_last_entry(PyObject *self, void *nothing)
{
    (void)nothing;
    return PyLong_FromLongLong(ebk_packer_state(packer_of(self))->next_entry - 1);
}

static PyObject *get_address(PyObject *self, void *nothing)
{
    (void)nothing;
    return PyLong_FromVoidPtr(packer_of(self));
}

static PyObject *open_count(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    return PyLong_FromUnsignedLong(ebk_packer_state(packer_of(self))->open_count);
}

static PyObject *has_full(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    return PyBool_FromLong(ebk_packer_state(packer_of(self))->full_count != 0);
}

static PyObject *stop(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    struct ebk_packer *packer = packer_of(self);
    LOCKED(packer, ebk_packer_stop_locked(packer));
    Py_RETURN_NONE;
}

/* Have Python raise the error for this payload; that of a failed call before gives way to it. */
static void refuse(PyObject *data)
{
    PyErr_Clear();
    PyObject *nothing = PyObject_CallFunctionObjArgs(refusing, data, NULL);
    if (nothing == NULL) return;
    Py_DECREF(nothing);
    PyErr_SetString(PyExc_SystemError, "refuse did not raise");
}

static int64_t append_bytes(struct ebk_packer *packer, const void *data, size_t size, int *should_wake)
{
    int64_t entry_id;
    IN_TURN(packer, size <= GIL_BYTES_MAX, entry_id = ebk_packer_append_in_turn(packer, data, size, should_wake));
    return entry_id;
}

static PyObject *append(PyObject *self, PyObject *data)
{
    int64_t entry_id;
    int should_wake;
    if (PyBytes_CheckExact(data)) {
        entry_id = append_bytes(packer_of(self), PyBytes_AsString(data), (size_t)PyBytes_Size(data), &should_wake);
    } else {
        Py_buffer view;
        if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
            refuse(data);
            return NULL;
        }
        entry_id = append_bytes(packer_of(self), view.buf, (size_t)view.len, &should_wake);
        PyBuffer_Release(&view);
    }
    if (entry_id == EBK_USAGE) {
        refuse(data);
        return NULL;
    }
    return Py_BuildValue("(LO)", (long long)entry_id, should_wake ? Py_True : Py_False);
}

/* append_with(data, attributes, expected, told): told, a list, gets the id. No signal is handled in between. */
static PyObject *append_with(PyObject *self, PyObject *arguments)
{
    struct ebk_packer *packer = packer_of(self);
    PyObject *data, *attributes, *told = NULL;
    long long expected;
    int64_t entry_id;
    int should_wake;
    Py_buffer view;
    if (!PyArg_ParseTuple(arguments, "OSL|O!", &data, &attributes, &expected, &PyList_Type, &told))
        return NULL;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        refuse(data);
        return NULL;
    }
    IN_TURN(packer, (size_t)view.len <= GIL_BYTES_MAX,
            entry_id = ebk_packer_append_with_in_turn(
                packer, expected, (const uint8_t *)PyBytes_AsString(attributes), (size_t)PyBytes_Size(attributes),
                view.buf, (size_t)view.len, &should_wake));
    PyBuffer_Release(&view);
    if (entry_id == EBK_USAGE) {
        refuse(data);
        return NULL;
    }
    if (told != NULL && entry_id >= 0) {
        PyObject *id = PyLong_FromLongLong(entry_id);
        const int kept = id == NULL ? -1 : PyList_Append(told, id);
        Py_XDECREF(id);
        if (kept < 0) return NULL;
    }
    return Py_BuildValue("(LO)", (long long)entry_id, should_wake ? Py_True : Py_False);
}

/* The payloads of a list as pointers and sizes. `kept` owns them: bytes, copied where they were something else. */
struct payloads {
    PyObject *kept;
    const uint8_t **data;
    uint32_t *sizes;
    Py_ssize_t count;
    size_t bytes;
};

static void free_payloads(struct payloads *payloads)
{
    Py_XDECREF(payloads->kept);
    PyMem_Free(payloads->data);
    PyMem_Free(payloads->sizes);
}

/* 0, or -1 with a Python error set. */
static int read_payloads(PyObject *sequence, struct payloads *payloads)
{
    *payloads = (struct payloads){.kept = PySequence_List(sequence)};
    if (payloads->kept == NULL) return -1;
    payloads->count = PyList_Size(payloads->kept);
    payloads->data = PyMem_Malloc(sizeof *payloads->data * (size_t)(payloads->count + 1));
    payloads->sizes = PyMem_Malloc(sizeof *payloads->sizes * (size_t)(payloads->count + 1));
    if (payloads->data == NULL || payloads->sizes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < payloads->count; i++) {
        PyObject *item = PyList_GetItem(payloads->kept, i);
        if (!PyBytes_CheckExact(item)) {
            /* Not PyBytes_FromObject: it would take a list of numbers, too. */
            Py_buffer view;
            if (PyObject_GetBuffer(item, &view, PyBUF_SIMPLE) < 0) {
                refuse(item);
                return -1;
            }
            item = PyBytes_FromStringAndSize(view.buf, view.len);
            PyBuffer_Release(&view);
            if (item == NULL || PyList_SetItem(payloads->kept, i, item) < 0) return -1;
        }
        const Py_ssize_t size = PyBytes_Size(item);
        if (size > (Py_ssize_t)EBK_ENTRY_APPEND_BYTES_MAX) {
            refuse(item);
            return -1;
        }
        payloads->data[i] = (const uint8_t *)PyBytes_AsString(item);
        payloads->sizes[i] = (uint32_t)size;
        payloads->bytes += (size_t)size;
    }
    return 0;
}

/* As many attributes as payloads, each within the limit together with its payload? A Python error is set where not. */
static bool do_fit(const struct payloads *payloads, const struct payloads *attributes)
{
    if (payloads->count != attributes->count) {
        PyErr_SetString(PyExc_TypeError, "append_many: one attributes for each payload");
        return false;
    }
    for (Py_ssize_t i = 0; i < payloads->count; i++) {
        if (attributes->sizes[i] <= UINT16_MAX - EBK_TIME_BYTES &&
            attributes->sizes[i] + payloads->sizes[i] <= EBK_ENTRY_APPEND_BYTES_MAX)
            continue;
        refuse(PyList_GetItem(payloads->kept, i));
        return false;
    }
    return true;
}

/* append_many(payloads, caller, attributes) */
static PyObject *append_many(PyObject *self, PyObject *arguments)
{
    struct ebk_packer *packer = packer_of(self);
    PyObject *sequence, *beside = NULL;
    unsigned long long caller = 0;
    if (!PyArg_ParseTuple(arguments, "O|KO", &sequence, &caller, &beside)) return NULL;
    struct ebk_appended done = {.first_entry = 0};
    struct payloads payloads, attributes = {.kept = NULL};
    if (read_payloads(sequence, &payloads) < 0 ||
        (beside != NULL && (read_payloads(beside, &attributes) < 0 || !do_fit(&payloads, &attributes)))) {
        free_payloads(&payloads);
        free_payloads(&attributes);
        return NULL;
    }
    const struct ebk_payloads given = {payloads.data, payloads.sizes, attributes.data, attributes.sizes,
                                       (uint64_t)payloads.count};
    const size_t bytes = payloads.bytes + attributes.bytes + (size_t)payloads.count * EBK_ENTRY_OVERHEAD_BYTES;
    IN_TURN(packer, bytes <= GIL_BYTES_MAX,
            ebk_packer_append_each_in_turn(packer, caller, &given, &done));
    free_payloads(&payloads);
    free_payloads(&attributes);
    return Py_BuildValue("(LLO)", (long long)done.first_entry, (long long)done.taken,
                         done.should_wake ? Py_True : Py_False);
}

/* append_rows(tuple of columns, begin, caller) */
static PyObject *append_rows(PyObject *self, PyObject *arguments)
{
    struct ebk_packer *packer = packer_of(self);
    PyObject *given;
    unsigned long long begin, caller;
    if (!PyArg_ParseTuple(arguments, "O!KK", &PyTuple_Type, &given, &begin, &caller)) return NULL;
    const Py_ssize_t count = PyTuple_Size(given);
    const struct ebk_arrow_column **columns = PyMem_Malloc(sizeof *columns * (size_t)(count + 1));
    if (columns == NULL) return PyErr_NoMemory();
    uint64_t bytes = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        columns[i] = ebk_arrow_column_of(PyTuple_GetItem(given, i));
        if (columns[i] == NULL) {
            PyMem_Free(columns);
            PyErr_SetString(PyExc_TypeError, "append_rows(tuple of ArrowColumn, begin, caller)");
            return NULL;
        }
        bytes += columns[i]->bytes + columns[i]->count * EBK_ENTRY_OVERHEAD_BYTES;
    }
    struct ebk_appended done = {.first_entry = 0};
    IN_TURN(packer, bytes <= GIL_BYTES_MAX,
            ebk_packer_append_rows_in_turn(packer, caller, columns, (uint64_t)count, begin, &done));
    PyMem_Free(columns);
    return Py_BuildValue("(LLO)", (long long)done.first_entry, (long long)done.taken,
                         done.should_wake ? Py_True : Py_False);
}

static PyObject *give_up_rest(PyObject *self, PyObject *arguments)
{
    unsigned long long caller;
    if (!PyArg_ParseTuple(arguments, "K", &caller)) return NULL;
    struct ebk_packer *packer = packer_of(self);
    LOCKED(packer, ebk_packer_give_up_rest_locked(packer, caller));
    Py_RETURN_NONE;
}

static PyObject *seal(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    struct ebk_packer *packer = packer_of(self);
    struct ebk_packed frame;
    int found;
    LOCKED(packer, found = ebk_packer_seal_locked(packer, &frame));
    if (!found) Py_RETURN_NONE;
    PyObject *view = view_of(&frame);
    if (view == NULL) return NULL;
    return Py_BuildValue("(NILLK)", view, frame.count, (long long)frame.first_entry, (long long)frame.last_entry,
                         (unsigned long long)frame.length);
}

static PyObject *set_lac(PyObject *self, PyObject *arguments)
{
    long long lac;
    unsigned long long lac_length;
    if (!PyArg_ParseTuple(arguments, "LK", &lac, &lac_length)) return NULL;
    struct ebk_packer *packer = packer_of(self);
    LOCKED(packer, ebk_packer_set_lac_locked(packer, lac, lac_length));
    Py_RETURN_NONE;
}

static PyMethodDef packing_methods[] = {
    {"_open", packing_open, METH_VARARGS, NULL},
    {"append", append, METH_O, NULL},
    {"append_many", append_many, METH_VARARGS, NULL},
    {"append_rows", append_rows, METH_VARARGS, NULL},
    {"append_with", append_with, METH_VARARGS, NULL},
    {"give_up_rest", give_up_rest, METH_VARARGS, NULL},
    {"seal", seal, METH_NOARGS, NULL},
    {"set_lac", set_lac, METH_VARARGS, NULL},
    {"stop", stop, METH_NOARGS, NULL},
    {"open_count", open_count, METH_NOARGS, NULL},
    {"has_full", has_full, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef packing_numbers[] = {
    {"is_stopped", get_flag, NULL, NULL, NUMBER(is_stopped)},
    {"next_entry", get_number, NULL, NULL, NUMBER(next_entry)},
    {"length", get_number, NULL, NULL, NUMBER(length)},
    {"unreleased_bytes", get_number, NULL, NULL, NUMBER(unreleased_bytes)},
    {"last_entry", get_last_entry, NULL, NULL, NULL},
    {"_address", get_address, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot packing_slots[] = {
    {Py_tp_new, packing_new},
    {Py_tp_dealloc, packing_dealloc},
    {Py_tp_methods, packing_methods},
    {Py_tp_getset, packing_numbers},
    {0, NULL},
};

static PyType_Spec packing_spec = {
    .name = "embedbk._native.Packing",
    .basicsize = sizeof(struct packing),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = packing_slots,
};

/* packing_type(refuse): the base of Packer, whose payloads are refused by this from now on. */
static PyObject *packing_type_with(PyObject *module, PyObject *refuse_payload)
{
    (void)module;
    Py_XDECREF(refusing);
    Py_INCREF(refuse_payload);
    refusing = refuse_payload;
    Py_INCREF((PyObject *)packing_type);
    return (PyObject *)packing_type;
}

static PyObject *crc32c(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Py_buffer data;
    unsigned long crc = 0;
    if (count < 1 || count > 2) {
        PyErr_SetString(PyExc_TypeError, "crc32c(data, crc=0)");
        return NULL;
    }
    if (count == 2) {
        crc = PyLong_AsUnsignedLong(arguments[1]);
        if (crc == (unsigned long)-1 && PyErr_Occurred()) return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &data, PyBUF_SIMPLE) < 0) return NULL;
    const uint32_t sum = ebk_crc32c((uint32_t)crc, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(sum);
}

/* message_head(kind, frame_count, control, frames_size, request_id): header and control part (message.h). */
static PyObject *message_head(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 5 || !PyBytes_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "message_head(kind, frame_count, control, frames_size, request_id)");
        return NULL;
    }
    const unsigned long kind = PyLong_AsUnsignedLong(arguments[0]), frame_count = PyLong_AsUnsignedLong(arguments[1]);
    const unsigned long frames_size = PyLong_AsUnsignedLong(arguments[3]);
    const unsigned long long request_id = PyLong_AsUnsignedLongLong(arguments[4]);
    if (PyErr_Occurred()) return NULL;
    EBK_ASSERT(kind <= UINT8_MAX && frame_count <= UINT16_MAX && frames_size <= EBK_MESSAGE_BYTES_MAX);
    const Py_ssize_t size = PyBytes_Size(arguments[2]);
    PyObject *head = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)EBK_MESSAGE_HEADER_BYTES + size);
    if (head == NULL) return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AsString(head);
    memcpy(to + EBK_MESSAGE_HEADER_BYTES, PyBytes_AsString(arguments[2]), (size_t)size);
    (void)ebk_message_seal_with(to, (uint8_t)kind, (uint16_t)frame_count, (uint32_t)frames_size, request_id,
                                to + EBK_MESSAGE_HEADER_BYTES + size);
    return head;
}

static PyMethodDef installed[] = {
    {"message_head", (PyCFunction)(void (*)(void))message_head, METH_FASTCALL, NULL},
    {"packing_type", packing_type_with, METH_O, NULL},
    {"frame_address", frame_address, METH_O, NULL},
    {"frame_view", frame_view, METH_VARARGS, NULL},
    {"crc32c", (PyCFunction)(void (*)(void))crc32c, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static int install(void)
{
    PyObject *module = PyImport_AddModule("embedbk._native"); /* Borrowed; it is the caller's. */
    if (module == NULL) return -1;
    if (body_type == NULL) body_type = (PyTypeObject *)PyType_FromSpec(&body_spec);
    if (packing_type == NULL) packing_type = (PyTypeObject *)PyType_FromSpec(&packing_spec);
    if (body_type == NULL || packing_type == NULL) return -1;
    return PyModule_AddFunctions(module, installed);
}

int ebk_python_calls_install(void)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    const int done = install();
    PyErr_Clear();
    PyGILState_Release(gil);
    return done;
}
