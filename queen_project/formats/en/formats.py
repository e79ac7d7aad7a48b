"""Times as everybody can sort and compare them. Zones are UTC throughout.

Named by settings.py as FORMAT_MODULE_PATH.
"""

DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
DATETIME_FORMAT = "Y-m-d H:i:s"
SHORT_DATE_FORMAT = DATE_FORMAT
SHORT_DATETIME_FORMAT = DATETIME_FORMAT
