"""A DNS server (RFC 1035) on a UDP port of loopback whose answers may change between queries."""
import socket
import struct
import threading

TYPES = {1: socket.AF_INET, 28: socket.AF_INET6}


class DnsServer:
    """`answer(name, query number, family)` returns a list of addresses, or None: no reply."""

    def __init__(self, answer):
        self.answer, self.counts, self.names = answer, {}, []

    def __enter__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.socket.close()

    def serve(self):
        while True:
            try:
                query, peer = self.socket.recvfrom(4096)
            except OSError:
                return
            reply = self.reply(query)
            if reply:
                self.socket.sendto(reply, peer)

    def reply(self, query):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
        name, question = ".".join(labels), query[12 : at + 5]
        family = TYPES.get(kind)
        number = self.counts[name, kind] = self.counts.get((name, kind), 0) + 1
        self.names.append(name)
        found = self.answer(name, number, family) if family else []
        if found is None:
            return None
        records = b""
        for address in found:
            data = socket.inet_pton(family, address)
            records += struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(data)) + data
        count = len(found)
        return query[:2] + struct.pack(">HHHHH", 0x8180, 1, count, 0, 0) + question + records
