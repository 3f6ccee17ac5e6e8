/* python_calls.c: see python_calls.h. Sums and heads of messages, and everything put into the module. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/python_calls.h"

#include "base/crc32c.h"
#include "base/errors.h"
#include "python/python_calls_inside.h"
#include "wire/message.h"

#include <stdint.h>

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
    {"crc32c", (PyCFunction)(void (*)(void))crc32c, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static int install(void)
{
    PyObject *module = PyImport_AddModule("embedbk._native"); /* Borrowed; it is the caller's. */
    if (module == NULL) return -1;
    if (ebk_frame_body_install(module) < 0 || ebk_packing_install(module) < 0) return -1;
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
