"""An SMTP server that keeps what it is handed (RFC 5321), as far as Python's smtplib needs one."""

import socketserver
import threading


class Smtp(socketserver.ThreadingTCPServer):
    """`mails` has the text of every message; `busy` makes it refuse them for a while."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Session)
        self.port = int(self.server_address[1])
        self.mails: list[str] = []
        self.busy = False
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class _Session(socketserver.StreamRequestHandler):
    server: Smtp

    def handle(self) -> None:
        self._say("220 test")
        while line := self.rfile.readline().decode().strip():
            verb = line.split(" ", 1)[0].upper()
            if verb == "DATA" and not self.server.busy:
                self._say("354 go on")
                self.server.mails.append(self._text())
                self._say("250 taken")
            elif verb == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("451 later" if self.server.busy and verb in ("MAIL", "DATA") else "250 yes")

    def _text(self) -> str:
        lines = []
        while (line := self.rfile.readline().decode().rstrip("\r\n")) != ".":
            lines.append(line)
        return "\n".join(lines)

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())
