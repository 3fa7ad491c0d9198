"""A line to a server that falls silent, as where a network drops everything, or is cut, as where no server listens."""

import socket
import threading
from contextlib import suppress

CHUNK = 65536


class TcpLine:
    """Forwards bytes of each connection to (host, port), both ways, in threads that do not keep the process alive."""

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self._speaking = threading.Event()
        self._speaking.set()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accept()

    def silence(self) -> None:
        """Nothing arrives any more, and nothing ends; what is sent meanwhile arrives later."""
        self._speaking.clear()

    def speak(self) -> None:
        """All of it arrives."""
        self._speaking.set()

    def cut(self) -> None:
        """Every connection ends, and new ones are refused."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the accept, which would keep the port
        self._listener.close()
        for one in tuple(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """New connections are taken again, at the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._accept()

    def _accept(self) -> None:
        threading.Thread(target=self._take, args=(self._listener,), daemon=True).start()

    def _take(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._behind)
                self._open |= {near, far}
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self._speaking.wait()
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()
