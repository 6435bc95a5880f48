"""python run.py <peer> <row> <postgres url> <messages>"""

import logging
import sys

import uvloop

from measure import measure
from peer_pgqueuer import Pgqueuer
from peer_procrastinate import Procrastinate

PEERS = {"pgqueuer": Pgqueuer, "procrastinate": Procrastinate}

if len(sys.argv) != 5 or sys.argv[1] not in PEERS:
    sys.exit(f"usage: python run.py {'|'.join(PEERS)} <row> <postgres url> <messages>")

# A line for every job would be part of what is measured.
logging.basicConfig(level=logging.ERROR)
peer, row, url, messages = sys.argv[1:]
uvloop.run(measure(PEERS[peer](), row, url, int(messages)))
