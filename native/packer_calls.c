/* packer_calls.c: see packer_calls.h. The only file here that knows Python; limited API of 3.11. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "packer_calls.h"

#include "frame.h"
#include "packer.h"

#define GIL_BYTES_MAX (64 << 10) /* More than this is copied with the GIL free: about 10 microseconds. */
#define CAPSULE "embedbk packer"

/* self of every call is the pair (capsule with the packer, refuse). */
static struct ebk_packer *packer_of(PyObject *self)
{
    return PyCapsule_GetPointer(PyTuple_GetItem(self, 0), CAPSULE);
}

static void drop_packer(PyObject *capsule)
{
    ebk_packer_unref(PyCapsule_GetPointer(capsule, CAPSULE));
}

/* Have Python raise the error for this payload; that of a failed call before gives way to it. */
static void refuse(PyObject *self, PyObject *data)
{
    PyErr_Clear();
    PyObject *nothing = PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, 1), data, NULL);
    if (nothing == NULL) return;
    Py_DECREF(nothing);
    PyErr_SetString(PyExc_SystemError, "refuse did not raise");
}

/* The mutex; the GIL is given away only when somebody else has it. */
static void lock_packer(struct ebk_packer *packer)
{
    if (ebk_packer_try_lock(packer)) return;
    Py_BEGIN_ALLOW_THREADS
    ebk_packer_lock(packer);
    Py_END_ALLOW_THREADS
}

static int64_t append_bytes(struct ebk_packer *packer, const void *data, size_t size, int *should_wake)
{
    int64_t entry_id;
    *should_wake = 0;
    if (size > GIL_BYTES_MAX) {
        Py_BEGIN_ALLOW_THREADS
        entry_id = ebk_packer_append(packer, data, size, should_wake);
        Py_END_ALLOW_THREADS
        return entry_id;
    }
    lock_packer(packer);
    entry_id = ebk_packer_append_locked(packer, data, size, should_wake);
    ebk_packer_unlock(packer);
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
            refuse(self, data);
            return NULL;
        }
        entry_id = append_bytes(packer_of(self), view.buf, (size_t)view.len, &should_wake);
        PyBuffer_Release(&view);
    }
    if (entry_id == EBK_PACKER_USAGE) {
        refuse(self, data);
        return NULL;
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
static int read_payloads(PyObject *self, PyObject *sequence, struct payloads *payloads)
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
                refuse(self, item);
                return -1;
            }
            item = PyBytes_FromStringAndSize(view.buf, view.len);
            PyBuffer_Release(&view);
            if (item == NULL || PyList_SetItem(payloads->kept, i, item) < 0) return -1;
        }
        const Py_ssize_t size = PyBytes_Size(item);
        if (size > (Py_ssize_t)EBK_ENTRY_PAYLOAD_BYTES_MAX) {
            refuse(self, item);
            return -1;
        }
        payloads->data[i] = (const uint8_t *)PyBytes_AsString(item);
        payloads->sizes[i] = (uint32_t)size;
        payloads->bytes += (size_t)size;
    }
    return 0;
}

static void append_payloads(struct ebk_packer *packer, const struct payloads *payloads, struct ebk_appended *done)
{
    const uint64_t count = (uint64_t)payloads->count;
    ebk_packer_append_each_locked(packer, payloads->data, payloads->sizes, count, done);
}

static PyObject *append_many(PyObject *self, PyObject *sequence)
{
    struct ebk_packer *packer = packer_of(self);
    struct ebk_appended done = {.first_entry = 0};
    struct payloads payloads;
    if (read_payloads(self, sequence, &payloads) < 0) {
        free_payloads(&payloads);
        return NULL;
    }
    if (payloads.bytes <= GIL_BYTES_MAX) {
        lock_packer(packer);
        append_payloads(packer, &payloads, &done);
        ebk_packer_unlock(packer);
    } else {
        Py_BEGIN_ALLOW_THREADS
        ebk_packer_lock(packer);
        append_payloads(packer, &payloads, &done);
        ebk_packer_unlock(packer);
        Py_END_ALLOW_THREADS
    }
    free_payloads(&payloads);
    return Py_BuildValue("(LLO)", (long long)done.first_entry, (long long)done.taken,
                         done.should_wake ? Py_True : Py_False);
}

static PyObject *seal(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    struct ebk_packer *packer = packer_of(self);
    struct ebk_packed frame;
    lock_packer(packer);
    const int found = ebk_packer_seal_locked(packer, &frame);
    ebk_packer_unlock(packer);
    if (!found) Py_RETURN_NONE;
    return Py_BuildValue("(KIILLK)", (unsigned long long)(uintptr_t)frame.body, frame.size, frame.count,
                         (long long)frame.first_entry, (long long)frame.last_entry,
                         (unsigned long long)frame.length);
}

static PyObject *set_lac(PyObject *self, PyObject *arguments)
{
    long long lac;
    unsigned long long lac_length;
    if (!PyArg_ParseTuple(arguments, "LK", &lac, &lac_length)) return NULL;
    struct ebk_packer *packer = packer_of(self);
    lock_packer(packer);
    ebk_packer_set_lac_locked(packer, lac, lac_length);
    ebk_packer_unlock(packer);
    Py_RETURN_NONE;
}

static PyMethodDef calls[] = {
    {"append", append, METH_O, NULL},
    {"append_many", append_many, METH_O, NULL},
    {"seal", seal, METH_NOARGS, NULL},
    {"set_lac", set_lac, METH_VARARGS, NULL},
};

#define CALL_COUNT (sizeof calls / sizeof *calls)

static PyObject *packer_calls(PyObject *module, PyObject *arguments)
{
    (void)module;
    unsigned long long address;
    PyObject *refusing;
    if (!PyArg_ParseTuple(arguments, "KO", &address, &refusing)) return NULL;
    struct ebk_packer *packer = (struct ebk_packer *)(uintptr_t)address;
    PyObject *capsule = PyCapsule_New(packer, CAPSULE, drop_packer);
    if (capsule == NULL) return NULL;
    ebk_packer_ref(packer);
    PyObject *self = PyTuple_Pack(2, capsule, refusing);
    Py_DECREF(capsule);
    PyObject *bound = self == NULL ? NULL : PyTuple_New(CALL_COUNT);
    for (size_t i = 0; bound != NULL && i < CALL_COUNT; i++) {
        PyObject *call = PyCFunction_NewEx(&calls[i], self, NULL);
        if (call == NULL || PyTuple_SetItem(bound, (Py_ssize_t)i, call) < 0) Py_CLEAR(bound);
    }
    Py_XDECREF(self);
    return bound;
}

static PyMethodDef installed[] = {{"packer_calls", packer_calls, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

int ebk_packer_calls_install(void)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *module = PyImport_AddModule("embedbk._native"); /* Borrowed; it is the caller's. */
    const int done = module == NULL ? -1 : PyModule_AddFunctions(module, installed);
    PyErr_Clear();
    PyGILState_Release(gil);
    return done;
}
