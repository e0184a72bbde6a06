.PHONY: deps-build
deps-build:
