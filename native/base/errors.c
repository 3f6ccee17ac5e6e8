/* errors.c: texts and Python classes of the codes in errors.h. */
#include "base/errors.h"

#include <stdio.h>
#include <stdlib.h>

#define EBK_ERROR_NAME(name, code, exception, text) case name: return #name;
#define EBK_ERROR_TEXT(name, code, exception, text) case name: return text;
#define EBK_ERROR_EXCEPTION(name, code, exception, text) case name: return exception;

const char *ebk_error_name(int code)
{
    switch (code) {
    case EBK_OK: return "EBK_OK";
    EBK_ERRORS(EBK_ERROR_NAME)
    default: return "EBK_UNKNOWN";
    }
}

const char *ebk_error_text(int code)
{
    switch (code) {
    case EBK_OK: return "no error";
    EBK_ERRORS(EBK_ERROR_TEXT)
    default: return "a code that no list names";
    }
}

const char *ebk_error_exception(int code)
{
    switch (code) {
    EBK_ERRORS(EBK_ERROR_EXCEPTION)
    default: return "InvariantError";
    }
}

_Noreturn void ebk_assert_failed(const char *fact, const char *file, int line)
{
    fprintf(stderr, "embedbk: broken invariant: %s (%s:%d)\n", fact, file, line);
    fflush(stderr);
    abort();
}
