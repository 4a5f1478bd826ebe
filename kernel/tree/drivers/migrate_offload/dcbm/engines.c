// SPDX-License-Identifier: GPL-2.0-only
/*
 * Engines: whose drivers are believed when they say that a copy was made, and keep a channel as
 * long as it is in use.
 *
 * A failed copy that is reported as good would be mapped. The drivers of Linux 6.12 were read;
 * Documentation/mm/migrate_copy_engines.rst has what was found in each.
 */
#define pr_fmt(fmt) "dcbm: " fmt

#include <linux/device.h>
#include <linux/kernel.h>
#include <linux/moduleparam.h>
#include <linux/string.h>

#include "dcbm.h"

/* The client is told of every copy that failed. ccp, ptdma and zynqmp_dma as of this series. */
static const char * const dcbm_believed[] = {
	"ccp", "ioatdma", "ptdma", "xilinx-zynqmp-dma",
};

/* A copy that failed, or that has not ended, can be reported as good. */
static const char * const dcbm_disbelieved[] = {
	"altera-msgdma", "at_hdmac", "at_xdmac", "brcm-flexrm-mbox", "dma-owl", "dma-pl330",
	"dpaa2-qdma", "dw_axi_dmac_platform", "dw_dmac", "dw_dmac_pci", "fsl-elo-dma",
	"fsl-raideng", "hidma", "hisi_dma", "imx-dma", "imx-sdma", "k3-dma",
	"milbeaut-m10v-xdmac", "mmp-pdma", "mpc512x_dma", "mv_xor_v2", "omap-dma-engine",
	"pl08xdmac", "PPC440SP(E)-ADMA", "rz-dmac", "sf-pdma", "sh-dma-engine", "sprd-dma",
	"st-fdma", "tegra-gpcdma", "ti-udma", "txx9dmac-chan", "xilinx-vdma",
};

/* Every failed copy is told, but a channel is freed under its client with its work queue. */
static const char * const dcbm_frees_channels[] = { "idxd" };

static char *dcbm_trust;
module_param_named(trust, dcbm_trust, charp, 0444);
MODULE_PARM_DESC(trust, "Name of one more DMA driver to believe; memory is lost if it is wrong");

static bool dcbm_trusts(const char *driver)
{
	if (!dcbm_trust || strcmp(driver, dcbm_trust))
		return false;
	pr_warn_once("driver %s is believed as parameter trust says: memory is lost if it reports a failed copy as good\n",
		     driver);
	return true;
}

/* Why the driver of @dev is not believed, or NULL. */
const char *dcbm_engine_objection(struct device *dev)
{
	const char *driver = dev_driver_string(dev);

	if (match_string(dcbm_believed, ARRAY_SIZE(dcbm_believed), driver) >= 0 ||
	    dcbm_trusts(driver))
		return NULL;
	if (match_string(dcbm_disbelieved, ARRAY_SIZE(dcbm_disbelieved), driver) >= 0)
		return "its driver reports failed copies as good";
	if (match_string(dcbm_frees_channels, ARRAY_SIZE(dcbm_frees_channels), driver) >= 0)
		return "its driver frees channels that are in use";
	return "its driver is not known to report failed copies";
}
