/* packing.c: the packer as an object of Python, the base class of `Packer` (python_calls.h has its calls).
 *
 * It decides when a call keeps the GIL, and which payloads it refuses before they reach the packer; what is appended is
 * decided in wire/packer_append.c.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/python_calls_inside.h"

#include "base/errors.h"
#include "python/arrow_calls.h"
#include "wire/arrow_column.h"
#include "wire/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GIL_BYTES_MAX (64 << 10) /* More than this is copied with the GIL free: about 10 microseconds. */

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
    PyObject *view = ebk_frame_body_view(&frame);
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

static PyMethodDef installed[] = {
    {"packing_type", packing_type_with, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int ebk_packing_install(void *module)
{
    if (packing_type == NULL) packing_type = (PyTypeObject *)PyType_FromSpec(&packing_spec);
    return packing_type == NULL ? -1 : PyModule_AddFunctions(module, installed);
}
