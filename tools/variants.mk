# Build variants. `make VARIANT=asan tests` builds one; `make test` builds all.
ifeq ($(VARIANT),release)
B := build$(if $(findstring clang,$(CC)),/clang)
else
B := build/$(VARIANT)
endif

# Hardening of the programs that are installed: stack protector, checked libc calls, control-flow
# protection, zeroed variables, read-only relocations. clang 14 has no zeroed variables by default.
V_CPPFLAGS_release := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
V_CPPFLAGS_asan    := -DTESTING
V_CPPFLAGS_tsan    := -DTESTING
V_CPPFLAGS_small   := -DTESTING -DSMALL=1
V_CPPFLAGS_fuzz    := -DTESTING

SAN_ASAN := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
V_CFLAGS_release := -fstack-protector-strong -fcf-protection \
                    $(if $(findstring clang,$(CC)),,-ftrivial-auto-var-init=zero)
V_LDFLAGS_release := -Wl,-z,relro,-z,now
V_CFLAGS_asan    := $(SAN_ASAN)
V_CFLAGS_tsan    := -fsanitize=thread -fno-omit-frame-pointer
V_CFLAGS_small   := $(SAN_ASAN)
V_CFLAGS_fuzz    := $(SAN_ASAN) -fsanitize=fuzzer-no-link

comma := ,
# Sanitizer builds use -O2 for the kernels, which compiles in half the time of -O3, and -g1, which is
# enough for line numbers in traces and halves the size of a test program.
ifeq ($(VARIANT),release)
V_OPT     := -O2 -g
V_ISA_OPT := -O3
else
V_OPT     := -O2 -g1
# Checks of pointers in the kernels of instruction sets double the time of their compilation, a third of
# a build; the address sanitizer and the processor (aligned loads) find what they find. The small build
# leaves the other checks of undefined behaviour in these kernels to the asan build.
V_ISA_OPT := $(if $(filter small,$(VARIANT)),-fno-sanitize=undefined,\
    -fno-sanitize=pointer-overflow$(comma)alignment$(comma)null$(comma)object-size)
endif

V_CPPFLAGS := $(V_CPPFLAGS_$(VARIANT))
V_CFLAGS   := $(V_CFLAGS_$(VARIANT))
V_LDFLAGS  := $(V_LDFLAGS_$(VARIANT))

ifeq ($(VARIANT),fuzz)
CC := clang
endif

V ?= 0
Q := $(if $(filter 1,$(V)),,@)
