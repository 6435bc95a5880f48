"""A handler in fifteen lines: charges a card once for each order, however often it is delivered."""
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        # The key is the same at every attempt: pass it to the payment service.
        print("charged order", order["order"], "with key", self.headers["idempotency-key"], flush=True)
        self.send_response(204)  # done; on any status but 2xx, Oncebox retries
        self.end_headers()

    def log_message(self, *_):
        pass

server = HTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000), Handler)
print("listening on", server.server_port, flush=True)
server.serve_forever()
