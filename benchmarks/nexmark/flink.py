"""NEXMark in Flink SQL: RocksDB, mini-batches, two tasks, a sink that drops all rows. Runs in Flink's own environment.

    .tools/flink/venv/bin/python -m benchmarks.nexmark.flink BOOTSTRAP FOLDER

A topic is read over the Kafka protocol up to its present end. q6 (retractions into an OVER window) and q13 (a lookup
in files) are not possible in Flink SQL.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.nexmark.answers import serve

JARS = Path(__file__).resolve().parents[2] / ".tools" / "flink" / "jars"

SOURCE = """
    CREATE TABLE events (
        event_type INT,
        person ROW<id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
            dateTime TIMESTAMP(3), extra STRING>,
        auction ROW<id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
            dateTime TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING>,
        bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP(3),
            extra STRING>,
        dateTime TIMESTAMP(3),
        WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND
    ) WITH (
        'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{bootstrap}',
        'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'json',
        'json.timestamp-format.standard' = 'ISO-8601'
    )"""
VIEWS = {
    "person": """
        SELECT person.id, person.name, person.emailAddress, person.creditCard, person.city, person.state, dateTime,
            person.extra FROM events WHERE event_type = 0""",
    "auction": """
        SELECT auction.id, auction.itemName, auction.description, auction.initialBid, auction.reserve, dateTime,
            auction.expires, auction.seller, auction.category, auction.extra FROM events WHERE event_type = 1""",
    "bid": """
        SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, dateTime, bid.extra
        FROM events WHERE event_type = 2""",
}

_RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}
_COUNTS = ", ".join(
    ["COUNT(*) AS total_bids", *(f"COUNT(*) FILTER (WHERE {rule}) AS {rank}_bids" for rank, rule in _RANKS.items())]
)
_DISTINCT = ", ".join(
    f"COUNT(DISTINCT {what}) {f'FILTER (WHERE {rule})' if rule else ''} AS {rank}_{what}s"
    for what in ("bidder", "auction")
    for rank, rule in {"total": "", **_RANKS}.items()
)
_DAY = "DATE_FORMAT(dateTime, 'yyyy-MM-dd')"
_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))"
_OPEN = "A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"
_MATCH = "SELECT * FROM bid MATCH_RECOGNIZE (PARTITION BY auction, bidder ORDER BY dateTime MEASURES"
_CHEAP = f"""{_MATCH} FIRST(A.dateTime) AS start_tstamp, LAST(A.dateTime) AS end_tstamp, AVG(A.price) AS avg_price
    ONE ROW PER MATCH AFTER MATCH {{}} PATTERN (A+ B) DEFINE A AS AVG(A.price) < 10000)"""

QUERIES = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, AVG(best) FROM (
            SELECT MAX(B.price) AS best, A.category FROM auction A, bid B WHERE {_OPEN} GROUP BY A.id, A.category
        ) GROUP BY category""",
    "q5": f"""WITH counts AS (
            SELECT auction, COUNT(*) AS num, window_start, window_end FROM {_HOP}
            GROUP BY auction, window_start, window_end)
        SELECT C.window_start, C.auction, C.num FROM counts C JOIN (
            SELECT MAX(num) AS most, window_start, window_end FROM counts GROUP BY window_start, window_end
        ) M ON C.window_start = M.window_start AND C.window_end = M.window_end AND C.num >= M.most""",
    "q7": f"""SELECT M.window_end, B.auction, B.bidder, B.price, B.dateTime, B.extra FROM bid B JOIN (
            SELECT MAX(price) AS highest, window_end FROM {_TUMBLE.format("bid")} GROUP BY window_start, window_end
        ) M ON B.price = M.highest
        WHERE B.dateTime BETWEEN M.window_end - INTERVAL '10' SECOND AND M.window_end""",
    "q8": f"""SELECT P.id, P.name, P.window_start FROM (
            SELECT id, name, window_start, window_end FROM {_TUMBLE.format("person")}
            GROUP BY id, name, window_start, window_end
        ) P JOIN (
            SELECT seller, window_start, window_end FROM {_TUMBLE.format("auction")}
            GROUP BY seller, window_start, window_end
        ) A ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end""",
    "q9": f"""SELECT * FROM (
            SELECT A.*, B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime AS bid_dateTime,
                B.extra AS bid_extra,
                ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC) AS place
            FROM auction A, bid B WHERE {_OPEN}
        ) WHERE place <= 1""",
    "q10": f"""SELECT auction, bidder, price, dateTime, extra, {_DAY} AS dt, DATE_FORMAT(dateTime, 'HH:mm') AS hm
        FROM bid""",
    "q11": """SELECT bidder, COUNT(*) AS bid_count, window_start, window_end
        FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    "q12": """SELECT bidder, COUNT(*) AS bid_count, window_start, window_end
        FROM TABLE(TUMBLE(TABLE bid_now, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN HOUR(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"SELECT {_DAY} AS `day`, {_COUNTS}, {_DISTINCT} FROM bid GROUP BY {_DAY}",
    "q16": f"""SELECT channel, {_DAY} AS `day`, MAX(DATE_FORMAT(dateTime, 'HH:mm')) AS `minute`, {_COUNTS}, {_DISTINCT}
        FROM bid GROUP BY channel, {_DAY}""",
    "q17": f"""SELECT auction, {_DAY} AS `day`, {_COUNTS}, MIN(price) AS min_price, MAX(price) AS max_price,
            AVG(price) AS avg_price, SUM(price) AS sum_price FROM bid GROUP BY auction, {_DAY}""",
    "q18": """SELECT auction, bidder, price, channel, url, dateTime, extra FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS place FROM bid
        ) WHERE place <= 1""",
    "q19": """SELECT * FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid
        ) WHERE rank_number <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
            itemName, description, initialBid, reserve, A.dateTime, expires, seller, category, A.extra
        FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
    "q21": """SELECT * FROM (
            SELECT auction, bidder, price, channel, CASE LOWER(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
            FROM bid
        ) WHERE channel_id IS NOT NULL""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1,
            SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid""",
    "q23": """SELECT bidder, price, channel, url, B.extra AS bid_extra, P.id AS person_id, name, emailAddress,
            creditCard, city, state, P.extra AS person_extra, itemName, description, initialBid, reserve,
            A.dateTime AS auction_dateTime, expires, seller, category, A.extra AS auction_extra
        FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder""",
    "c0": f"""{_MATCH} S.dateTime AS start_tstamp, LAST(DOWN.dateTime) AS bottom_tstamp, LAST(UP.dateTime) AS end_tstamp
        ONE ROW PER MATCH AFTER MATCH SKIP TO LAST UP PATTERN (S DOWN+ UP)
        DEFINE DOWN AS (LAST(DOWN.price, 1) IS NULL AND DOWN.price < S.price) OR DOWN.price < LAST(DOWN.price, 1),
            UP AS UP.price > LAST(DOWN.price, 1))""",
    "c1": _CHEAP.format("SKIP PAST LAST ROW"),
    "c2": _CHEAP.format("SKIP TO NEXT ROW"),
    "c3": f"""{_MATCH} C.dateTime AS drop_time, A.price - C.price AS drop_diff
        ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B* C) WITHIN INTERVAL '5' SECOND
        DEFINE B AS B.price > A.price - 50, C AS C.price < A.price - 50)""",
}


class Flink:
    """Runs a query; each in a small cluster of its own, in one JVM."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder = bootstrap, folder

    def run(self, query: str, topic: str) -> None:
        """All of a topic."""
        environment = self._environment(topic)
        result = environment.sql_query(_quoted(QUERIES[query]))
        environment.create_temporary_view("result", result)
        columns = ", ".join(
            f"`{field}` {kind.nullable()}" for field, kind in self._columns(result.get_resolved_schema())
        )
        environment.execute_sql(f"CREATE TABLE sink ({columns}) {self._sink(query)}")
        environment.execute_sql("INSERT INTO sink SELECT * FROM `result`").wait()

    def _columns(self, schema: object) -> list[tuple[str, object]]:
        return list(zip(schema.get_column_names(), schema.get_column_data_types(), strict=True))

    def _sink(self, query: str) -> str:
        if query != "q10":
            return "WITH ('connector' = 'blackhole')"
        files = self.folder / "q10"
        shutil.rmtree(files, ignore_errors=True)
        return f"""PARTITIONED BY (dt, hm) WITH ('connector' = 'filesystem', 'path' = '{files.as_uri()}',
            'format' = 'csv', 'sink.partition-commit.trigger' = 'partition-time',
            'sink.partition-commit.delay' = '1 min', 'sink.partition-commit.policy.kind' = 'success-file',
            'partition.time-extractor.timestamp-pattern' = '$dt $hm:00',
            'sink.rolling-policy.rollover-interval' = '1min')"""

    def _environment(self, topic: str) -> TableEnvironment:
        settings = {
            "parallelism.default": "2",
            "pipeline.jars": ";".join(jar.as_uri() for jar in JARS.glob("*.jar")),
            "state.backend.type": "rocksdb",
            "execution.checkpointing.interval": "30s",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.dir": (self.folder / "checkpoints").as_uri(),
            "io.tmp.dirs": str(self.folder / "tmp"),
            "taskmanager.memory.managed.size": "1g",
            "taskmanager.memory.network.max": "256m",
            "pipeline.object-reuse": "true",
            "table.local-time-zone": "UTC",
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "2s",
            "table.exec.mini-batch.size": "50000",
            "table.optimizer.distinct-agg.split.enabled": "true",
            "table.exec.source.idle-timeout": "10s",
        }
        configuration = Configuration()
        for name, value in settings.items():
            configuration.set_string(name, value)
        made = TableEnvironment.create(
            EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
        )
        made.execute_sql(_quoted(SOURCE.format(topic=topic, bootstrap=self.bootstrap)))
        for name, text in VIEWS.items():
            made.execute_sql(_quoted(f"CREATE TEMPORARY VIEW {name} AS {text}"))
        made.execute_sql("CREATE TEMPORARY VIEW bid_now AS SELECT *, PROCTIME() AS p_time FROM bid")
        return made


def _quoted(sql: str) -> str:
    """The name of a column is a word of Flink's."""
    return re.sub(r"\bdateTime\b", "`dateTime`", sql)


def main() -> None:
    bootstrap, folder = sys.argv[1:]
    serve(Flink(bootstrap, Path(folder)).run)


if __name__ == "__main__":
    main()
