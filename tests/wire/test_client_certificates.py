#!/usr/bin/env python3
"""TLS with client certificates (--ssl-client-ca-file): only clients with a certificate of these
authorities reach a route."""
import os
import socket
import ssl
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, program, run

VERSIONS = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def openssl(directory, *args):
    subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True)


def authority(directory, name):
    openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-days", "2", "-subj", "/CN=" + name, "-keyout", name + ".key", "-out", name + ".pem")


def certificate(directory, name, issuer, usage="clientAuth", days="1"):
    with open(os.path.join(directory, name + ".ext"), "w") as f:
        f.write(f"extendedKeyUsage={usage}\nsubjectAltName=IP:127.0.0.1\n")
    openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
        "/CN=" + name, "-keyout", name + ".key", "-out", name + ".csr")
    openssl(directory, "x509", "-req", "-in", name + ".csr", "-CA", issuer + ".pem", "-CAkey",
        issuer + ".key", "-CAcreateserial", "-days", days, "-extfile", name + ".ext", "-out", name + ".pem")


def make_files(directory):
    for name in "ours", "theirs":
        authority(directory, name)
    certificate(directory, "server", "ours", "serverAuth")
    certificate(directory, "good", "ours")
    certificate(directory, "purpose", "ours", "serverAuth")
    certificate(directory, "expired", "ours", days="-1")
    certificate(directory, "stranger", "theirs")


def context(directory, name, version):
    c = ssl.create_default_context(cafile=os.path.join(directory, "ours.pem"))
    c.minimum_version = c.maximum_version = version
    if name:
        path = os.path.join(directory, name)
        c.load_cert_chain(path + ".pem", path + ".key")
    return c


def status(server, c, session=None):
    """The status of one request, the TLS session and whether it was resumed; Nones if the server
    ends the connection."""
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw, \
                c.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as s:
            s.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            data = s.recv(4096)
            return int(data.split(b" ")[1]), s.session, s.session_reused
    except (ssl.SSLError, ConnectionError, IndexError):
        return None, None, None


def flags(directory):
    return ["--ssl-cert-file", directory + "/server.pem", "--ssl-key-file", directory + "/server.key",
        "--ssl-client-ca-file", directory + "/ours.pem"]


def test_only_certificates_of_the_authorities_are_accepted():
    with tempfile.TemporaryDirectory() as d:
        make_files(d)
        with Server(*flags(d), ready=False) as s:
            for version in VERSIONS:
                for name, want in ("good", 200), (None, None), ("stranger", None), ("purpose", None), \
                        ("expired", None), ("good", 200):
                    equal(status(s, context(d, name, version))[0], want, (name, version))


def test_sessions_are_resumed():
    with tempfile.TemporaryDirectory() as d:
        make_files(d)
        with Server(*flags(d), ready=False) as s:
            for version in VERSIONS:
                c = context(d, "good", version)
                first, session, _ = status(s, c)
                equal(first, 200)
                equal(status(s, c, session)[::2], (200, True), version)


def test_bad_files_end_the_start():
    with tempfile.TemporaryDirectory() as d:
        make_files(d)
        for args in [*flags(d)[:5], "/nope"], [*flags(d)[:5], d + "/ours.key"], \
                ["--ssl-client-ca-file", d + "/ours.pem"]:
            r = subprocess.run([program("inferfluxd"), "--port", "0", "--model",
                ROOT + "/models/demo.gguf", *args], capture_output=True, text=True, timeout=60)
            equal(r.returncode, 1, args)
            assert args[-1] in r.stderr, r.stderr


if __name__ == "__main__":
    run(globals())
