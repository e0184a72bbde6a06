#!/usr/bin/env python3
"""Starts a server and runs anthropic_node.mjs, the official client for Node, against it."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server

with Server("--sse-ping-interval", "50") as server:
    status = subprocess.call(["node", os.path.join(ROOT, "tests/sdk/anthropic_node.mjs"), server.url,
        os.path.join(ROOT, "build/node")])
sys.exit(status)
