from procrastinate import App, PsycopgConnector

from measure import Peer, key, payload

CONCURRENCY = 20


class Procrastinate(Peer):
    name = "procrastinate"
    unfinished = "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"

    async def open(self, url):
        self.app = App(connector=PsycopgConnector(conninfo=url, min_size=10, max_size=30))
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()
        self.started = None

        @self.app.task(name="noop")
        async def noop(n, note):
            self.started(n)

        self.noop = noop

    async def enqueue(self, n):
        await self.noop.configure(queueing_lock=key(n)).defer_async(**payload(n))

    async def enqueue_batch(self, numbers):
        # `batch_defer_async` gives one lock to the whole batch, which then refuses its second job.
        jobs = [self.noop.configure(queueing_lock=key(n)).make_new_job(**payload(n)) for n in numbers]
        await self.app.job_manager.batch_defer_jobs_async(jobs=jobs)

    async def work(self, started):
        self.started = started
        await self.app.run_worker_async(
            concurrency=CONCURRENCY,
            delete_jobs="always",
            listen_notify=True,
            install_signal_handlers=False,
        )
