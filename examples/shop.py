"""A shop whose customers and products live in PostgreSQL: the log follows the database, views follow the log.

The database (SHOP_DSN, or postgresql://localhost/shop) has::

    CREATE TABLE customers (id bigint PRIMARY KEY, name text, town text);
    CREATE TABLE products (id bigint PRIMARY KEY, name text, price numeric(10,2), updated_at timestamptz DEFAULT now());

``headrace install capture``, then ``headrace run examples/shop.py``; orders come in as JSON:
``headrace produce orders``.
"""

import os

import headrace as hr
from headrace import F

DSN = os.environ.get("SHOP_DSN", "postgresql://localhost/shop")

app = hr.App("shop")
app.stream(
    "orders",
    "order_id long, customer_id long, product_id long, quantity int, ordered_at timestamp",
    event_time="ordered_at",
    lateness="10 minutes",
)
app.table("customers", key="id", capture=hr.Postgres(DSN, table="public.customers"))
app.table("products", key="id", history=True, capture=hr.Postgres(DSN, table="public.products"))


@app.view(key="town")
def customers_by_town(customers):
    """How many customers there are in each town, as the database has it now."""
    return hr.aggregate(customers, by="town", customers=hr.count())


@app.view(key="order_id")
def invoices(orders, products):
    """Each order at the price that its product had when it was ordered, whatever it costs now."""
    priced = hr.enrich(orders, products, on={"product_id": "id"}, as_of="ordered_at")
    return priced.select("order_id", "customer_id", "name", (F.col("price") * F.col("quantity")).alias("total"))


@app.view(key=["id", "valid_from"])
def prices(products):
    """What each product has cost, and from when to when."""
    return hr.history(products)
