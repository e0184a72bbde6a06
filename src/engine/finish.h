/* finish.h: why a choice ended. */
#pragma once

enum finish {
    FINISH_NONE,
    FINISH_STOP,      /* a stop token, the end of a script, or nothing may follow the output */
    FINISH_LENGTH,    /* max_tokens, or the context is full */
    FINISH_CANCELLED, /* cancelled by the caller, or the engine ended */
    FINISH_ERROR,     /* gen_result.err has the reason */
    FINISH_UNMET,     /* the constraint permits no token, or its mask exceeds a bound */
    FINISH_FILTERED,  /* a filter of the output ended the choice; never set by the engine */
};
