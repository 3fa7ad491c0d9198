"""A message that is a status and no data, as JetStream sends one at the end of a pull."""

from nats.aio.client import Client
from nats.protocol.command import hpub_cmd


async def send_status(client: Client, subject: str, code: int, sentence: str) -> None:
    """Publishes `NATS/1.0 CODE SENTENCE` without a body.

    Clients of other languages read a status from the first line of the headers alone, where nats-py's `publish` puts
    nothing: so this writes the command itself.

    Args:
        code: of three digits.
        sentence: anything; what would end the line is left out.
    """
    plain = " ".join(sentence.split()).encode("ascii", "replace")[:512]
    headers = b"NATS/1.0 %d %s\r\n\r\n" % (code, plain)
    await client._send_command(hpub_cmd(subject, "", headers, b""))
    await client._flush_pending()
