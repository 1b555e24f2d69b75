#!/bin/sh
# Cargo calls this instead of rustc for the packages of this workspace: the same, with the seeded faults
# of dlm-core compiled in.
exec "$@" --cfg seeded_bugs
