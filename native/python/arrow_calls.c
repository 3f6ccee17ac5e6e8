/* arrow_calls.c: see arrow_calls.h. Knows Python, as all of this folder; limited API of 3.11. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/arrow_calls.h"

#include "wire/arrow_beside.h"

#include <string.h>

#define NAMES_BYTES_MAX 400 /* Bytes of the column names in one message. */
#define GIL_ROWS_MAX 4096   /* More rows are looked at without the GIL. */
#define FAULTS_OF_A_COLUMN 16

struct arrow_column {
    PyObject_HEAD
    struct ArrowArray array; /* released with this */
    struct ebk_arrow_column column;
};

static PyTypeObject *column_type;

/* A producer may have written its release in Python, which finds no error of ours pending. */
static void release_array(struct ArrowArray *array)
{
    PyObject *type, *value, *trace;
    if (array->release == NULL) return;
    PyErr_Fetch(&type, &value, &trace);
    array->release(array);
    PyErr_Restore(type, value, trace);
}

static void release_schema(struct ArrowSchema *schema)
{
    PyObject *type, *value, *trace;
    if (schema->release == NULL) return;
    PyErr_Fetch(&type, &value, &trace);
    schema->release(schema);
    PyErr_Restore(type, value, trace);
}

static void column_dealloc(PyObject *self)
{
    struct arrow_column *column = (struct arrow_column *)self;
    PyTypeObject *type = Py_TYPE(self);
    release_array(&column->array);
    ebk_arrow_beside_free(&column->column);
    PyObject_Free(self);
    Py_DECREF(type);
}

static Py_ssize_t column_length(PyObject *self)
{
    return (Py_ssize_t)((struct arrow_column *)self)->column.count;
}

static PyObject *column_item(PyObject *self, Py_ssize_t row)
{
    const struct ebk_arrow_column *column = &((struct arrow_column *)self)->column;
    uint32_t size;
    if (row < 0 || (uint64_t)row >= column->count) {
        PyErr_SetString(PyExc_IndexError, "no such row");
        return NULL;
    }
    const uint8_t *data = ebk_arrow_row(column, (uint64_t)row, &size);
    return PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)size);
}

static PyObject *attribute_of(PyObject *self, PyObject *argument)
{
    const struct ebk_arrow_column *column = &((struct arrow_column *)self)->column;
    uint32_t size;
    const unsigned long long row = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred()) return NULL;
    if (row >= column->count) {
        PyErr_SetString(PyExc_IndexError, "no such row");
        return NULL;
    }
    const uint8_t *data = ebk_arrow_beside(column, row, &size);
    return PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)size);
}

static PyObject *get_has_records(PyObject *self, void *nothing)
{
    (void)nothing;
    return PyBool_FromLong(((struct arrow_column *)self)->column.beside != NULL);
}

static PyObject *get_bytes(PyObject *self, void *nothing)
{
    (void)nothing;
    return PyLong_FromUnsignedLongLong(((struct arrow_column *)self)->column.bytes);
}

static PyObject *get_largest(PyObject *self, void *nothing)
{
    (void)nothing;
    return PyLong_FromUnsignedLong(((struct arrow_column *)self)->column.largest);
}

static PyGetSetDef column_numbers[] = {
    {"byte_count", get_bytes, NULL, NULL, NULL},
    {"largest", get_largest, NULL, NULL, NULL},
    {"has_records", get_has_records, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef column_methods[] = {
    {"attribute", attribute_of, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot column_slots[] = {
    {Py_tp_dealloc, column_dealloc},
    {Py_tp_getset, column_numbers},
    {Py_tp_methods, column_methods},
    {Py_sq_length, column_length},
    {Py_sq_item, column_item},
    {0, NULL},
};

static PyType_Spec column_spec = {
    .name = "embedbk._native.ArrowColumn",
    .basicsize = sizeof(struct arrow_column),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = column_slots,
};

const struct ebk_arrow_column *ebk_arrow_column_of(void *object)
{
    if (Py_TYPE((PyObject *)object) != column_type) return NULL;
    return &((struct arrow_column *)object)->column;
}

/* The text of a message beside the fault: the names of the columns, or the unknown format. */
static PyObject *text_of(const struct ArrowSchema *schema, const char *name, int fault)
{
    char names[NAMES_BYTES_MAX] = "";
    size_t used = 0;
    const int is_struct = schema->format != NULL && strcmp(schema->format, "+s") == 0;
    for (int64_t i = 0; is_struct && i < schema->n_children; i++) {
        const struct ArrowSchema *child = schema->children[i];
        const char *its = child->name == NULL ? "" : child->name;
        if (fault == EBK_ARROW_FORMAT && strcmp(its, name) == 0)
            return PyUnicode_DecodeUTF8(child->format, (Py_ssize_t)strlen(child->format), "replace");
        const size_t size = strlen(its);
        if (used + size + 3 > sizeof names) break;
        if (used > 0) used += (size_t)(stpcpy(names + used, ", ") - (names + used));
        memcpy(names + used, its, size + 1);
        used += size;
    }
    const int is_named = is_struct || schema->format == NULL || fault == EBK_ARROW_NO_COLUMN;
    const char *text = is_named ? names : schema->format;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* What is wanted: the names of the columns. */
struct names {
    const char *value;
    struct ebk_arrow_names beside;
};

/* What is wrong, as which column's fault (arrow_calls.h). */
static PyObject *refuse(const struct ArrowSchema *schema, const struct names *names, int fault,
                        enum ebk_arrow_which which, uint64_t at)
{
    const char *const all[] = {names->value, names->beside.key, names->beside.timestamp, names->beside.headers};
    if (fault == EBK_ARROW_NO_MEMORY) return PyErr_NoMemory();
    /* What is no Arrow array, or was taken, has nothing that may be read: its names went with it. */
    PyObject *text = fault == EBK_ARROW_UNSOUND ? PyUnicode_FromString("") : text_of(schema, all[which], fault);
    if (text == NULL) return NULL;
    return Py_BuildValue("(iKN)", fault + FAULTS_OF_A_COLUMN * (int)which, (unsigned long long)at, text);
}

/* The column of this array, which belongs to it from now on; or what is wrong, and the array was released. */
static PyObject *column_from(const struct ArrowSchema *schema, struct ArrowArray *array, const struct names *names)
{
    struct ebk_arrow_column found;
    uint64_t at;
    enum ebk_arrow_which which = EBK_ARROW_VALUE;
    const int has_beside = names->beside.key != NULL || names->beside.timestamp != NULL || names->beside.headers != NULL;
    PyThreadState *const without = array->length > GIL_ROWS_MAX ? PyEval_SaveThread() : NULL;
    int fault = ebk_arrow_column_open(schema, array, names->value, &found, &at);
    if (fault == EBK_ARROW_SOUND && has_beside)
        fault = ebk_arrow_beside_make(schema, array, &names->beside, &found, &which, &at);
    if (without != NULL) PyEval_RestoreThread(without);
    struct arrow_column *column = NULL;
    PyObject *told = NULL;
    if (fault != EBK_ARROW_SOUND) {
        told = refuse(schema, names, fault, which, at);
    } else if ((column = PyObject_New(struct arrow_column, column_type)) != NULL) {
        column->array = *array;
        column->column = found;
        array->release = NULL; /* Moved, as the interface asks for. */
        return (PyObject *)column;
    } else {
        ebk_arrow_beside_free(&found);
    }
    release_array(array);
    return told;
}

/* arrow_column(schema, array, value[, key, timestamp, headers]) */
static PyObject *arrow_column(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *schemas, *arrays;
    struct names names = {NULL, {NULL, NULL, NULL}};
    if (!PyArg_ParseTuple(arguments, "OOs|zzz", &schemas, &arrays, &names.value, &names.beside.key,
                          &names.beside.timestamp, &names.beside.headers))
        return NULL;
    const struct ArrowSchema *schema = PyCapsule_GetPointer(schemas, "arrow_schema");
    if (schema == NULL) return NULL;
    struct ArrowArray *array = PyCapsule_GetPointer(arrays, "arrow_array");
    if (array == NULL) return NULL;
    return column_from(schema, array, &names);
}

static PyObject *fail(struct ArrowArrayStream *stream, int error)
{
    const char *text = stream->get_last_error(stream);
    PyErr_Format(PyExc_RuntimeError, "the stream failed: %s", text == NULL ? strerror(error) : text);
    return NULL;
}

/* arrow_column_of_stream(stream, value[, key, timestamp, headers]). A stream's functions may take long, and may need Python: call them without the GIL. */
static PyObject *arrow_column_of_stream(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *capsule;
    struct names names = {NULL, {NULL, NULL, NULL}};
    if (!PyArg_ParseTuple(arguments, "Os|zzz", &capsule, &names.value, &names.beside.key, &names.beside.timestamp,
                          &names.beside.headers))
        return NULL;
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (stream == NULL) return NULL;
    if (stream->release == NULL) {
        PyErr_SetString(PyExc_ValueError, "the stream was released");
        return NULL;
    }
    struct ArrowSchema schema = {.release = NULL};
    struct ArrowArray array = {.release = NULL};
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = stream->get_schema(stream, &schema);
    if (error == 0) error = stream->get_next(stream, &array);
    Py_END_ALLOW_THREADS
    PyObject *column = NULL;
    if (error != 0)
        column = fail(stream, error);
    else if (array.release != NULL)
        column = column_from(&schema, &array, &names);
    else
        column = (Py_INCREF(Py_None), Py_None);
    release_schema(&schema);
    return column;
}

static PyMethodDef installed[] = {
    {"arrow_column", arrow_column, METH_VARARGS, NULL},
    {"arrow_column_of_stream", arrow_column_of_stream, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int install(void)
{
    PyObject *module = PyImport_AddModule("embedbk._native"); /* Borrowed; it is the caller's. */
    if (module == NULL) return -1;
    if (column_type == NULL) column_type = (PyTypeObject *)PyType_FromSpec(&column_spec);
    if (column_type == NULL) return -1;
    return PyModule_AddFunctions(module, installed);
}

int ebk_arrow_calls_install(void)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    const int done = install();
    PyErr_Clear();
    PyGILState_Release(gil);
    return done;
}
