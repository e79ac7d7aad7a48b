"""The console's live dashboard: one picture of the broker, shown to everybody who watches.

collector.py makes the picture, live.py shows it to the viewers, consumer.py is the websocket,
views.py are the pages.
"""
