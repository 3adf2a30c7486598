"""Whether a Dask scheduler answers at an address: asked before there is a client, which would wait for any answer."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ppmodel.errors import SweepError

_SCHEMES = ("tcp", "tls")


def require_scheduler(address, seconds):
    """Refuse an address where no scheduler answers: nobody, somebody else, or somebody who says nothing.

    Parameters
    ----------
    address : str
        Of TCP, or of TLS with the certificates of Dask's own configuration.
    seconds : float
        How long to wait for the answer.

    Raises
    ------
    SweepError
        With what happened instead.
    """
    from distributed.comm import parse_address, resolve_address

    try:
        if parse_address(address)[0] not in _SCHEMES:
            raise ValueError("it must begin with tcp:// or tls://")
        resolve_address(address)  # a name that nobody knows would be tried again and again
        with ThreadPoolExecutor(1) as apart:  # a notebook's own thread runs an event loop already
            answer = apart.submit(lambda: asyncio.run(asyncio.wait_for(_identity(address, seconds), seconds))).result()
    except TimeoutError:
        raise unreachable(address, f"no answer within {seconds} s") from None
    except Exception as error:  # whatever a library makes of an address, a network, or another protocol's bytes
        raise unreachable(address, error) from error
    if answer.get("type") != "Scheduler":
        raise unreachable(address, "what answers is not a Dask scheduler")


def unreachable(address, why):
    """The error about an address where no scheduler can be used.

    Parameters
    ----------
    address : str
    why : Exception or str

    Returns
    -------
    SweepError
    """
    rule = f"cannot be reached ({str(why) or type(why).__name__})"
    remedy = "check that 'dask scheduler' runs there, and write, for example, tcp://host:8786"
    return SweepError("--scheduler", address, rule, remedy)


async def _identity(address, seconds):
    """What a server says that it is; nothing where its bytes are of another protocol."""
    from distributed.comm import connect
    from distributed.security import Security

    certificates = Security().get_connection_args("client")
    try:
        connection = await connect(address, timeout=seconds, **certificates)
        try:
            await connection.write({"op": "identity", "reply": True})
            return dict(await connection.read())
        finally:
            connection.abort()
    except (OSError, TypeError, TimeoutError):  # nobody there, or TLS without certificates
        raise
    except Exception:
        return {}
