"""Check that a Dask scheduler answers at an address, before creating a client, which would wait forever."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ppmodel.errors import SweepError

_SCHEMES = ("tcp", "tls")


def require_scheduler(address, seconds):
    """Refuse an address at which no scheduler answers: nothing, another server, or one that stays silent.

    Parameters
    ----------
    address : str
        A TCP address, or TLS with the certificates from Dask's configuration.
    seconds : float
        How long to wait for an answer.

    Raises
    ------
    SweepError
        Says what happened instead.
    """
    from distributed.comm import parse_address, resolve_address

    try:
        if parse_address(address)[0] not in _SCHEMES:
            raise ValueError("it must begin with tcp:// or tls://")
        resolve_address(address)  # an unknown host name would be retried forever
        with ThreadPoolExecutor(1) as apart:  # a notebook's thread already runs an event loop
            answer = apart.submit(lambda: asyncio.run(asyncio.wait_for(_identity(address, seconds), seconds))).result()
    except TimeoutError:
        raise unreachable(address, f"no answer within {seconds} s") from None
    except Exception as error:  # anything a bad address, network or protocol may cause
        raise unreachable(address, error) from error
    if answer.get("type") != "Scheduler":
        raise unreachable(address, "what answers is not a Dask scheduler")


def unreachable(address, why):
    """Make the error for an address at which no scheduler can be used.

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
    """What a server says it is; nothing if it speaks another protocol."""
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
