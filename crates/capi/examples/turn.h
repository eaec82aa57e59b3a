/* What the examples share: one line for a call that must not fail. */
#ifndef TURN_H
#define TURN_H

#include "packetlane.h"

#include <stdio.h>
#include <stdlib.h>

/* Ends the program unless `call` returns PACKETLANE_OK. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        packetlane_status status_ = (call);                                                        \
        if (status_ != PACKETLANE_OK) {                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                           \
                    packetlane_error_message());                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
