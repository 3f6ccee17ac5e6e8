/* errors.h: every code that a C function of embedbk can return, in one list.
 *
 * The list makes the enum here, the texts in errors.c, the constants that Python
 * sees (native/build_native.py reads the EBK_ERROR lines) and the exception class
 * that Python raises. A code never changes its number and is never used again for
 * something else.
 *
 * EBK_ASSERT states what a correct program cannot break and is always on. What the
 * disk, the network or the user hands in is never asserted: it gets a code.
 */
#ifndef EBK_ERRORS_H
#define EBK_ERRORS_H

#include <stdint.h>

/*            name                 code  Python class          text */
#define EBK_ERRORS(EBK_ERROR)                                                                          \
    EBK_ERROR(EBK_FULL,             -1,  "NotReady",           "no room: every slot is in flight")     \
    EBK_ERROR(EBK_FAILED,           -2,  "StorageError",       "stopped after an earlier failure")     \
    EBK_ERROR(EBK_USAGE,            -3,  "UsageError",         "the caller broke the contract")        \
    EBK_ERROR(EBK_NO_MEMORY,        -4,  "StorageError",       "memory was refused")                   \
    EBK_ERROR(EBK_IO,               -5,  "StorageError",       "the system refused the operation")     \
    EBK_ERROR(EBK_DAMAGED,          -6,  "StorageError",       "stored bytes are not what was written")\
    EBK_ERROR(EBK_FOREIGN,          -7,  "StorageError",       "not a file of this directory")         \
    EBK_ERROR(EBK_VERSION,          -8,  "StorageError",       "written by a version unknown here")    \
    EBK_ERROR(EBK_LOCKED,           -9,  "StorageError",       "in use by another process or handle")  \
    EBK_ERROR(EBK_UNSUPPORTED,      -10, "UsageError",         "not available on this machine")        \
    EBK_ERROR(EBK_NO_SPACE,         -11, "StorageError",       "no space left on the device")          \
    EBK_ERROR(EBK_END,              -12, "NotReady",           "nothing more to read")                  \
    EBK_ERROR(EBK_CONFLICT,         -13, "NotReady",           "not what the caller expected to find") \
    EBK_ERROR(EBK_WANT,             -14, "StorageError",       "the process has no descriptor or memory left")

#define EBK_ERROR_ENUM(name, code, exception, text) name = (code),
enum ebk_error { EBK_OK = 0, EBK_ERRORS(EBK_ERROR_ENUM) EBK_ERROR_LAST_ = -14 };
#undef EBK_ERROR_ENUM

/* Bytes that hold any text made by ebk_assert_failed() or a failure report. */
#define EBK_TEXT_BYTES_MAX 512

/* cffi:begin */
/* The name of a code as written in the list ("EBK_FULL"), or "EBK_UNKNOWN". Never NULL. */
const char *ebk_error_name(int code);
/* One clause that says what happened. Never NULL. */
const char *ebk_error_text(int code);
/* Which class of embedbk.errors Python raises; "NotReady" is never raised, the caller handles it. */
const char *ebk_error_exception(int code);
/* cffi:end */

/* Print the broken fact and stop the process: going on could lose acknowledged data. */
_Noreturn void ebk_assert_failed(const char *fact, const char *file, int line);

#define EBK_ASSERT(fact) ((fact) ? (void)0 : ebk_assert_failed(#fact, __FILE__, __LINE__))

#endif
