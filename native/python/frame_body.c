/* frame_body.c: the body of a frame that is out, as a buffer of Python that releases it with its last view.
 *
 * It decides what a view of a frame is and when its release is due; the frame itself is the packer's (wire/packer.h).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/python_calls_inside.h"

#include <stddef.h>
#include <stdint.h>

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

void *ebk_frame_body_view(const struct ebk_packed *frame)
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
    return ebk_frame_body_view(&frame);
}

static PyMethodDef installed[] = {
    {"frame_address", frame_address, METH_O, NULL},
    {"frame_view", frame_view, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int ebk_frame_body_install(void *module)
{
    if (body_type == NULL) body_type = (PyTypeObject *)PyType_FromSpec(&body_spec);
    return body_type == NULL ? -1 : PyModule_AddFunctions(module, installed);
}
