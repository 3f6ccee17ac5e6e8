/* gather.c: see gather.h. Knows Python, as all of this folder; limited API of 3.11.
 *
 *     block | link 64 | bytes of the message ...      | unused up to a power of two |
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/gather.h"

#include "wire/envelope.h"
#include "wire/zmq_calls.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_BYTES_MAX (32u << 20) /* All kept blocks together; others go back to the system. */
#define BLOCK_BYTES_MIN (64u << 10) /* Shorter ones are bytes: malloc serves them from pages that it has. */
#define CLASS_COUNT 8               /* Sizes 128 KiB to 16 MiB; longer blocks are not kept. */
#define CLASS_SHIFT_MIN 17
#define GIL_BYTES_MAX (1u << 20) /* See gil.h: beside a busy thread, getting it back costs more than 0.1 ms. */
#define VIEWS_MAX 16 /* Enough for a message with one frame; more are allocated. */
#define MALLOC_KEPT_BYTES (64 << 20)

struct block {
    struct block *next;
    uint32_t shift; /* Its size is 1 << shift. */
    _Alignas(64) uint8_t data[];
};

static struct {
    pthread_mutex_t mutex;
    struct block *kept[CLASS_COUNT];
    uint64_t kept_bytes;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* In the child of a fork: another thread of the parent may have held the mutex or half-changed a list. */
static void forget_parent(void)
{
    pthread_mutex_init(&pool.mutex, NULL);
    memset(pool.kept, 0, sizeof pool.kept);
    pool.kept_bytes = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_parent);
}

static int is_kept_size(uint32_t shift)
{
    return shift < CLASS_SHIFT_MIN + CLASS_COUNT;
}

static struct block *take(size_t size)
{
    uint32_t shift = CLASS_SHIFT_MIN;
    struct block *block = NULL;
    while (((size_t)1 << shift) < size + sizeof *block) shift += 1;
    if (is_kept_size(shift)) {
        pthread_mutex_lock(&pool.mutex);
        block = pool.kept[shift - CLASS_SHIFT_MIN];
        if (block != NULL) {
            pool.kept[shift - CLASS_SHIFT_MIN] = block->next;
            pool.kept_bytes -= (uint64_t)1 << shift;
        }
        pthread_mutex_unlock(&pool.mutex);
    }
    if (block == NULL) block = malloc((size_t)1 << shift);
    if (block != NULL) block->shift = shift;
    return block;
}

static void give(struct block *block)
{
    const uint64_t size = (uint64_t)1 << block->shift;
    if (is_kept_size(block->shift)) {
        pthread_mutex_lock(&pool.mutex);
        if (pool.kept_bytes + size <= KEPT_BYTES_MAX) {
            block->next = pool.kept[block->shift - CLASS_SHIFT_MIN];
            pool.kept[block->shift - CLASS_SHIFT_MIN] = block;
            pool.kept_bytes += size;
            block = NULL;
        }
        pthread_mutex_unlock(&pool.mutex);
    }
    free(block);
}

uint64_t ebk_gather_kept_bytes(void)
{
    return __atomic_load_n(&pool.kept_bytes, __ATOMIC_RELAXED);
}

/* ---- the block as an object of Python --------------------------------------------- */

struct gathered {
    PyObject_HEAD
    struct block *block;
    Py_ssize_t size;
};

static PyTypeObject *gathered_type;

static int gathered_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    struct gathered *gathered = (struct gathered *)self;
    return PyBuffer_FillInfo(view, self, gathered->block->data, gathered->size, 1, flags);
}

static Py_ssize_t gathered_length(PyObject *self)
{
    return ((struct gathered *)self)->size;
}

static void gathered_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    give(((struct gathered *)self)->block);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot gathered_slots[] = {
    {Py_tp_dealloc, gathered_dealloc},
    {Py_bf_getbuffer, gathered_get_buffer},
    {Py_sq_length, gathered_length},
    {0, NULL},
};

static PyType_Spec gathered_spec = {
    .name = "embedbk._native.Gathered",
    .basicsize = sizeof(struct gathered),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = gathered_slots,
};

static void copy(uint8_t *to, const Py_buffer *views, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        memcpy(to, views[i].buf, (size_t)views[i].len);
        to += views[i].len;
    }
}

static PyObject *join(const Py_buffer *views, Py_ssize_t count, size_t size)
{
    if (size < BLOCK_BYTES_MIN) {
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (bytes != NULL) copy((uint8_t *)PyBytes_AsString(bytes), views, count);
        return bytes;
    }
    struct block *block = take(size);
    if (block == NULL) return PyErr_NoMemory();
    struct gathered *gathered = PyObject_New(struct gathered, gathered_type);
    if (gathered == NULL) {
        give(block);
        return NULL;
    }
    gathered->block = block;
    gathered->size = (Py_ssize_t)size;
    if (size <= GIL_BYTES_MAX) {
        copy(block->data, views, count);
    } else {
        Py_BEGIN_ALLOW_THREADS
        copy(block->data, views, count);
        Py_END_ALLOW_THREADS
    }
    return (PyObject *)gathered;
}

static PyObject *gather(PyObject *module, PyObject *pieces)
{
    (void)module;
    if (!PyTuple_Check(pieces)) {
        PyErr_SetString(PyExc_TypeError, "gather(tuple of buffers)");
        return NULL;
    }
    const Py_ssize_t count = PyTuple_Size(pieces);
    Py_buffer few[VIEWS_MAX];
    Py_buffer *views = count <= VIEWS_MAX ? few : PyMem_Malloc(sizeof *views * (size_t)count);
    if (views == NULL) return PyErr_NoMemory();
    PyObject *joined = NULL;
    Py_ssize_t held = 0;
    size_t size = 0;
    while (held < count && PyObject_GetBuffer(PyTuple_GetItem(pieces, held), &views[held], PyBUF_SIMPLE) == 0) {
        size += (size_t)views[held].len;
        held += 1;
    }
    if (held == count) joined = join(views, count, size);
    for (Py_ssize_t i = 0; i < held; i++) PyBuffer_Release(&views[i]);
    if (views != few) PyMem_Free(views);
    return joined;
}

/* ---- pieces straight into a message of ZeroMQ ------------------------------------- */

/* Envelope and pieces as one message. Returns 1; 0 when the socket takes no more now; -1 when it is over. */
static long send_views(void *socket, const uint8_t *prefix, const Py_buffer *views, Py_ssize_t count, size_t size)
{
    struct ebk_zmq_message message;
    if (ebk_zmq.init_size(&message, EBK_ENVELOPE_BYTES + size) < 0) return 0;
    uint8_t *to = ebk_zmq.data(&message);
    memcpy(to, prefix, EBK_ENVELOPE_PREFIX_BYTES);
    ebk_store_u32(to + EBK_ENVELOPE_AT_LENGTH, (uint32_t)size);
    ebk_store_u32(to + EBK_ENVELOPE_AT_CRC, ebk_crc32c(0, to, EBK_ENVELOPE_AT_CRC));
    copy(to + EBK_ENVELOPE_BYTES, views, count);
    while (ebk_zmq.send(&message, socket, EBK_ZMQ_DONTWAIT) < 0) {
        const int error = ebk_zmq.last_error();
        if (error == EINTR) continue;
        (void)ebk_zmq.close(&message);
        return error == EAGAIN ? 0 : -1;
    }
    return 1;
}

/* send_pieces(address of the socket, prefix, list of buffers) */
static PyObject *send_pieces(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    (void)module;
    void *socket;
    if (argument_count != 3 || !PyLong_Check(arguments[0]) || !PyBytes_Check(arguments[1]) ||
        PyBytes_Size(arguments[1]) != EBK_ENVELOPE_PREFIX_BYTES || !PyList_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "send_pieces(socket, prefix, list of buffers)");
        return NULL;
    }
    if ((socket = PyLong_AsVoidPtr(arguments[0])) == NULL) return NULL;
    PyObject *const pieces = arguments[2];
    const Py_ssize_t count = PyList_Size(pieces);
    Py_buffer few[VIEWS_MAX];
    Py_buffer *views = count <= VIEWS_MAX ? few : PyMem_Malloc(sizeof *views * (size_t)count);
    if (views == NULL) return PyErr_NoMemory();
    Py_ssize_t held = 0;
    size_t size = 0;
    while (held < count && PyObject_GetBuffer(PyList_GetItem(pieces, held), &views[held], PyBUF_SIMPLE) == 0) {
        size += (size_t)views[held].len;
        held += 1;
    }
    long sent = 0;
    if (held == count) sent = send_views(socket, (const uint8_t *)PyBytes_AsString(arguments[1]), views, count, size);
    for (Py_ssize_t i = 0; i < held; i++) PyBuffer_Release(&views[i]);
    if (views != few) PyMem_Free(views);
    return held == count ? PyLong_FromLong(sent) : NULL;
}

static PyMethodDef installed[] = {
    {"gather", gather, METH_O, NULL},
    {"send_pieces", (PyCFunction)(void (*)(void))send_pieces, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static int install(void)
{
    PyObject *module = PyImport_AddModule("embedbk._native"); /* Borrowed; it is the caller's. */
    if (module == NULL) return -1;
    if (gathered_type == NULL) gathered_type = (PyTypeObject *)PyType_FromSpec(&gathered_spec);
    if (gathered_type == NULL) return -1;
    return PyModule_AddFunctions(module, installed);
}

int ebk_gather_install(void)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    const int done = install();
    PyErr_Clear();
    PyGILState_Release(gil);
    return done;
}

void ebk_keep_freed_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, MALLOC_KEPT_BYTES);
    mallopt(M_TRIM_THRESHOLD, MALLOC_KEPT_BYTES);
}
