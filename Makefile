# lode.  Meson and Ninja do the building; this is the front door:
#
#   make             build/lode, build/liblode.a and build/liblode.so with what is installed
#   make demo        installs what the build needs, builds, and chats with models/demo.gguf
#   make check       installs what the tests need and runs them, bounded (docs/testing.md)
#   make check-long  the same in full: long fuzzing, every byte, every allocation, all sanitizers;
#                    with RESUME=1 it goes on where the last one of this commit was cut off
#   make fuzz        the fuzz targets, FUZZ_SECONDS each (default 600)
#   make install     into PREFIX (default /usr/local; DESTDIR is honoured)
#   make clean       removes what was built
#
# BUILD names the build folder, CC the compiler.

BUILD  ?= build
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 600

.PHONY: all demo check check-long fuzz install clean test-tools

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@scripts/packages.sh check build
	@meson setup $(BUILD) --prefix $(PREFIX) -Dtests=false

# packages.sh says 3 when it has installed something: an older configuration did not know of it.
demo:
	@scripts/packages.sh install build; rc=$$?; \
	if [ $$rc = 3 ] && [ -f $(BUILD)/build.ninja ]; then \
	    meson setup --reconfigure $(BUILD) >/dev/null; \
	elif [ $$rc != 0 ] && [ $$rc != 3 ]; then exit $$rc; fi
	@[ -x $(BUILD)/lode ] || echo "Building lode, which takes a minute or so ..."
	@$(MAKE) --no-print-directory all >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log
	@BUILD=$(BUILD) scripts/demo.sh

test-tools:
	@scripts/packages.sh install test; rc=$$?; [ $$rc = 0 ] || [ $$rc = 3 ]

check: test-tools
	@python3 tests/run.py --build $(BUILD)/check

check-long: test-tools
	@python3 tests/run.py --build $(BUILD)/check --long $(if $(RESUME),--resume)

fuzz: test-tools
	@python3 tests/run.py --build $(BUILD)/check --only 'fuzz*' --fuzz-seconds $(FUZZ_SECONDS)

install: all
	@meson configure $(BUILD) --prefix $(PREFIX)
	@meson install -C $(BUILD)

clean:
	@rm -rf $(BUILD)
