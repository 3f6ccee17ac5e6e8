/* gil.h: which functions Python calls without giving the GIL away.
 *
 * cffi gives the GIL away around every call. Beside a thread that is busy in Python each
 * call then waits for a thread switch, up to 5 ms, to do what takes a microsecond: taking
 * one message apart cost 5 ms. EBK_SHORT in front of a declaration keeps the GIL. It is
 * for functions that neither wait nor reach the system for long, and that hold no more
 * than a moment's work (a frame summed or copied: 0.1 ms at most).
 *
 * build_native.py collects the names (`keep_gil`); the mark itself means nothing to C.
 */
#ifndef EBK_GIL_H
#define EBK_GIL_H

#define EBK_SHORT

#endif
