# Targets other than compilation: run, test, bench, fuzz, format, install, help.

.DEFAULT_GOAL := all

HOST ?= 127.0.0.1
PORT ?= 8080

.PHONY: run
run: $(B)/inferfluxd
	@exec $(B)/inferfluxd --host $(HOST) --port $(PORT) --batch auto --model models/demo.gguf

.PHONY: test
test:
	@tools/deps build test
	@tests/all

# Tests that take too long for every change: long fuzzing, hostile input, soak test, a million cancelled
# requests.
.PHONY: test-long
test-long:
	@tools/deps build test
	@tests/all long

.PHONY: check
check:
	@tools/check-layers
	@tools/check-size
	@tools/check-banned
	@tools/check-prose
	@tools/check-headers

# Long-running targets, which `make test` does not run.
.PHONY: bench fuzz soak
bench: $(PROGRAMS) $(TOOL_BIN)
	@bench/run $(BENCH)

FUZZ_SECONDS ?= 600
fuzz:
	@tools/deps build test
	@tests/fuzz/run $(FUZZ_SECONDS)

# Mutated JSON, HTTP, TLS, model files and settings, with the address sanitizer. The differential test
# compares a busy server with a bare one.
.PHONY: hostile test-differential
HOSTILE_SECONDS ?= 600
hostile:
	@$(MAKE) VARIANT=asan all tools
	@failed=0; for script in tests/hostile/test_*.py; do \
	    BUILD=build/asan HOSTILE_SECONDS=$(HOSTILE_SECONDS) $$script || failed=1; done; exit $$failed

DIFFERENTIAL_SECONDS ?= 120
test-differential: $(PROGRAMS) $(B)/tools/mkmodel
	@BUILD=$(B) HOSTILE_SECONDS=$(DIFFERENTIAL_SECONDS) tests/hostile/test_differential.py

# Cancels a million simulated requests, each in a random state, and checks that no page, sequence or
# event is leaked.
.PHONY: cancels
cancels: $(B)/tests/sim/test_sim
	@SIM_CANCELS=1000000 $(B)/tests/sim/test_sim

soak: $(PROGRAMS)
	@BUILD=$(B) tests/soak/run

# Compares the families with llama.cpp and mlx-lm. Installs both below build/ first, which compiles
# llama.cpp.
.PHONY: test-families
test-families: $(B)/bench/accuracy $(B)/tools/mkmodel $(B)/tests/golden/test_adapters
	@tools/deps build families
	@tests/families/env
	@tests/families/run

# Compares the accuracy with trained weights and of every type with llama.cpp. Downloads two models.
.PHONY: test-weights
test-weights: $(B)/bench/accuracy
	@tools/deps build families
	@tests/families/env
	@build/families-venv/bin/python tests/families/weights.py

# Kernel tests on an emulated CPU (Bochs) with the instructions that this machine may lack.
.PHONY: emulated
emulated:
	@tests/emulated/run

C_FILES := $(shell find src include tests bench tools -name '*.[ch]' 2>/dev/null)

.PHONY: fmt lint
fmt:
	@clang-format -i $(C_FILES)

lint: check
	@tools/check-format

SONAME := libinferflux.so.0
SHLIB  := $(B)/$(SONAME)

# Installs in the FHS layout below PREFIX. DESTDIR is a staging directory for packages.
.PHONY: install
BINDIR  := $(DESTDIR)$(PREFIX)/bin
LIBDIR  := $(DESTDIR)$(PREFIX)/lib
MANDIR  := $(DESTDIR)$(PREFIX)/share/man
DATADIR := $(DESTDIR)$(PREFIX)/share/inferflux
DOCDIR  := $(DESTDIR)$(PREFIX)/share/doc/inferflux
ETCDIR  := $(DESTDIR)$(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)/inferflux
UNITDIR := $(DESTDIR)$(PREFIX)/lib/systemd/system
install: $(PROGRAMS) $(SHLIB)
	install -d $(BINDIR) $(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include $(MANDIR)/man1 \
	    $(MANDIR)/man8 $(DATADIR)/models $(DOCDIR) $(ETCDIR) $(UNITDIR)
	install -m 755 $(B)/inferfluxd $(B)/inferctl $(BINDIR)
	install -m 644 $(LIB) $(LIBDIR)
	install -m 755 $(SHLIB) $(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(LIBDIR)/libinferflux.so
	sed 's|@PREFIX@|$(PREFIX)|g; s|@VERSION@|$(VERSION)|g' deploy/inferflux.pc.in \
	    > $(LIBDIR)/pkgconfig/inferflux.pc
	install -m 644 include/inferflux.h $(DESTDIR)$(PREFIX)/include
	install -m 644 docs/man/inferctl.1 $(MANDIR)/man1
	install -m 644 docs/man/inferfluxd.8 $(MANDIR)/man8
	install -m 644 models/demo.gguf models/README.md $(DATADIR)/models
	install -m 644 README.md LICENSE CHANGES.md SECURITY.md $(DOCDIR)
	test -e $(ETCDIR)/server.yaml || install -m 644 config/server.yaml $(ETCDIR)/server.yaml
	sed 's|@PREFIX@|$(PREFIX)|g; s|@ETC@|$(patsubst $(DESTDIR)%,%,$(ETCDIR))|g' \
	    deploy/inferfluxd.service.in > $(UNITDIR)/inferfluxd.service

$(SHLIB): $(LIB_OBJ)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

.PHONY: clean
clean:
	rm -rf build

.PHONY: help
help:
	@echo "make            build build/inferfluxd and build/inferctl"
	@echo "make run        install missing packages, build, serve models/demo.gguf (HOST=, PORT=)"
	@echo "make test       install test packages, build every variant, run all tests"
	@echo "make test-long  long fuzzing (FUZZ_SECONDS=60 each), hostile input (HOSTILE_SECONDS=60 each), soak"
	@echo "                test, a million cancelled requests, ten rounds of schedule invariance"
	@echo "make check      check layers, sizes, banned functions, headers"
	@echo "make bench      run benchmarks (BENCH=kernels|serve|decode|compare selects one)"
	@echo "make fuzz       run every fuzzer for FUZZ_SECONDS=600 each"
	@echo "make hostile    send mutated JSON, HTTP, TLS, model files, settings for HOSTILE_SECONDS=600 each"
	@echo "make test-differential"
	@echo "                compare a busy server with a bare one for DIFFERENTIAL_SECONDS=120"
	@echo "make test-families"
	@echo "                compare each family with llama.cpp and mlx-lm (installs both, 15 minutes once)"
	@echo "make test-weights"
	@echo "                compare trained weights and every type with llama.cpp (15 minutes, downloads 350 MB)"
	@echo "make cancels    cancel a million requests in random states, in the simulator"
	@echo "make soak       run slow, disconnecting and flooding clients for SOAK_SECONDS=600"
	@echo "make emulated   test AMX and AVX-VNNI on an emulated CPU; takes about 20 minutes"
	@echo "make fmt lint   format the C code; check format and limits"
	@echo "make install    install the programs, library and documents (PREFIX=/usr/local DESTDIR=)"
	@echo "Options: VARIANT=release|asan|tsan|small  CC=gcc|clang  V=1 (show commands)"

# Documents that inferfluxd generates from its tables of options and metrics, and counts of tests.
.PHONY: docs
docs: $(B)/inferfluxd
	@$(B)/inferfluxd --print-docs | awk '/^# Metrics/ { out = "docs/metrics.md" } \
	    { print > (out ? out : "docs/configuration.md") }'
	@tests/hostile/counts.py --write
	@$(B)/inferfluxd --print-docs=man > docs/man/inferfluxd.8
