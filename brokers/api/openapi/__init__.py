"""The description of every route, as an OpenAPI 3.1 document and a page to read it on.

words.py       what a few lines about a route are made of
areas/         those lines, one module an area; a new module is found by itself
document.py    the table of routes and these lines, put together
page.py        the page, and the assets that come with it

Used by api/views/docs.py.
"""
