"""Django settings, made from the configuration. Nothing else is tuned here.

Requests never hold a Django connection open (CONN_MAX_AGE 0) and never run inside an
implicit transaction (ATOMIC_REQUESTS off): the hot paths do not use Django's connections
at all, and the rest must not sit idle in a transaction.

Imports config, logs, secret. Named by DJANGO_SETTINGS_MODULE.
"""

from queen_project import config as environment
from queen_project import logs, secret

QUEEN_CONFIG = environment.from_environment()
_postgres = QUEEN_CONFIG.postgres
_parameters = _postgres.parameters(application_name="queen-django")

BASE_DIR = environment.PROJECT_DIR
SECRET_KEY = QUEEN_CONFIG.auth.secret_key or secret.kept_secret_key(QUEEN_CONFIG.paths.data_dir)
DEBUG = False
# Of the console. The API does not ask for whom it was meant.
ALLOWED_HOSTS = list(QUEEN_CONFIG.listener.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(QUEEN_CONFIG.listener.trusted_origins)
# Cookies are the console's alone: no script reads them, no other site sends them. A proxy that
# ends TLS reaches us in the clear, so a request cannot tell what its browser spoke.
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = QUEEN_CONFIG.listener.seen_by_tls
ROOT_URLCONF = "queen_project.urls"
ASGI_APPLICATION = "queen_project.asgi.application"

INSTALLED_APPS = [
    "brokers.admin.apps.ConsoleConfig",  # django.contrib.admin, with our site
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "brokers",  # before staticfiles, which has a runserver too
    "django.contrib.staticfiles",
    "rest_framework",
    "channels",
    "django_prometheus",
]

MIDDLEWARE = [
    "queen_project.console.console_headers",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "brokers.admin.gate.gate",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": {
        "ENGINE": (
            "queen_project.database" if _postgres.embedded else "django.db.backends.postgresql"
        ),
        "NAME": _parameters.pop("dbname"),
        "USER": _parameters.pop("user"),
        "PASSWORD": _parameters.pop("password"),
        "HOST": _parameters.pop("host"),
        "PORT": _parameters.pop("port"),
        "OPTIONS": {key: value for key, value in _parameters.items() if key != "client_encoding"},
        "CONN_MAX_AGE": 0,
        "ATOMIC_REQUESTS": False,
        "DISABLE_SERVER_SIDE_CURSORS": True,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True
FORMAT_MODULE_PATH = "queen_project.formats"
STATIC_URL = "/static/"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},  # nothing is uploaded
    "staticfiles": {"BACKEND": "brokers.admin.assets.VersionedStorage"},
}

LOGIN_URL = "/admin/login/"
LOGIN_REDIRECT_URL = "/"
CSRF_FAILURE_VIEW = "brokers.admin.answers.forged"
SESSION_COOKIE_AGE = 43_200
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

# A redirect to the name with a slash would turn a POST into a GET.
APPEND_SLASH = False
DATA_UPLOAD_MAX_MEMORY_SIZE = QUEEN_CONFIG.server.body_bytes_max

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    # No cookie session is accepted on the API; the door authenticates, for both kinds of route.
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
    "EXCEPTION_HANDLER": "brokers.api.views.exception_handler",
}

SPECTACULAR_SETTINGS = {"OAS_VERSION": "3.1.0"}

# The metrics are exported by the door; the app must not ask the database while it loads.
PROMETHEUS_EXPORT_MIGRATIONS = False

LOGGING = logs.settings_for(QUEEN_CONFIG.logging)
